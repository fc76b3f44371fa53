// The structures that kernels of a team op take by value. They are equal at all launches of an executable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manifest/op.hpp"
#include "team/binding.hpp"

namespace kiln::jit {

class TeamArguments {
 public:
  /// `offsets`: of each symmetric workspace in a half of the team's memory, of which the workspaces fill `bytes`.
  /// `world`: the problem's. Throws Error(bad_input) for another number of ranks, and for a half that is too small.
  TeamArguments(const std::string& op, const team::TeamBinding& binding, std::int64_t world,
                std::span<const std::int64_t> offsets, std::int64_t bytes);
  // Kernel arguments point into it.
  TeamArguments(const TeamArguments&) = delete;
  TeamArguments& operator=(const TeamArguments&) = delete;

  [[nodiscard]] const team::TeamArgument& team() const noexcept { return team_; }
  /// `symmetric`: the number of the workspace among the symmetric ones.
  [[nodiscard]] const team::PeersArgument& peers(std::size_t symmetric) const noexcept { return peers_[symmetric]; }

 private:
  team::TeamArgument team_{};
  std::vector<team::PeersArgument> peers_;
};

/// Throws Error(bad_input): an executable of a team op was asked for without a binding.
[[noreturn]] void refuse_without_team(const std::string& op);

}  // namespace kiln::jit
