// What kiln::Team holds.
#pragma once

#include <memory>
#include <optional>

#include "kiln/team.hpp"
#include "team/environment.hpp"
#include "team/member.hpp"
#include "team/symmetric_memory.hpp"

namespace kiln::team {

/// Made in two steps, both of them collective: what the ranks need of the team's memory may depend on the link between
/// them.
struct TeamState {
  /// Meets the ranks, opens this rank's device, and finds the link. `local_rank` is the launcher's, if there is one.
  /// Throws as kiln::Team's constructors do.
  TeamState(const Membership& membership, const TeamOptions& options, std::optional<int> local_rank);
  /// Once: allocates and maps `bytes` on each rank, in place of TeamOptions::bytes, and makes the member. Over a
  /// network it makes the member alone. Throws as those do.
  void share_memory(std::int64_t bytes);
  /// Of this rank's device, with the team's link.
  [[nodiscard]] manifest::DeviceFacts facts() const;

  Rendezvous rendezvous;
  std::unique_ptr<cuda::Context> context;  // outlives `memory`
  manifest::TeamLink link = manifest::TeamLink::none;
  std::chrono::milliseconds launch_timeout;
  std::optional<SymmetricMemory> memory;  // none over a network
  std::optional<Member> member;
};

/// As kiln::Team's constructor without a rank, before its ranks share memory.
std::unique_ptr<TeamState> launched_state(const TeamOptions& options);

/// Returns the device of a rank that sees so many: `asked`, else the local rank's, else the only one. Throws
/// Error(bad_input) where that decides nothing.
int chosen_device(std::optional<int> asked, std::optional<int> local_rank, int visible);

}  // namespace kiln::team
