// What kiln::Team holds.
#pragma once

#include <memory>
#include <optional>

#include "kiln/team.hpp"
#include "team/environment.hpp"
#include "team/member.hpp"
#include "team/symmetric_memory.hpp"

namespace kiln::team {

struct State {
  /// Collective, as kiln::Team's constructors. `local_rank` is the launcher's, if there is one.
  State(const Membership& membership, const TeamOptions& options, std::optional<int> local_rank);

  Rendezvous rendezvous;
  std::unique_ptr<cuda::Context> context;  // outlives `memory`
  std::optional<SymmetricMemory> memory;
  std::optional<Member> member;
};

/// Returns the device of a rank that sees so many: `asked`, else the local rank's, else the only one. Throws
/// Error(bad_input) where that decides nothing.
int chosen_device(std::optional<int> asked, std::optional<int> local_rank, int visible);

}  // namespace kiln::team
