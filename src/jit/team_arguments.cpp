#include "jit/team_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::jit {

TeamArguments::TeamArguments(const std::string& op, const team::TeamBinding& binding, std::int64_t world,
                             std::span<const std::int64_t> offsets, std::int64_t bytes) {
  if (binding.world != world)
    throw Error(ErrorKind::bad_input, fmt::format("op '{}': the problem is for {} ranks, and the team has {}; give the "
                                                  "team's number of ranks as the size of the team axis",
                                                  op, world, binding.world));
  if (bytes > binding.half_bytes)
    throw Error(
        ErrorKind::bad_input,
        fmt::format("op '{}' needs {} bytes of team memory for this problem, two halves of {} bytes among them, "
                    "and the team's halves have {}; make the team with {} bytes or more",
                    op, team::bytes_for_half(bytes), bytes, binding.half_bytes, team::bytes_for_half(bytes)));
  const auto ranks = std::min<std::size_t>(binding.memory.size(), binding.world);  // NCCL may serve more
  for (std::size_t rank = 0; rank < ranks; ++rank) team_.control[rank] = binding.memory[rank];
  team_.report = binding.report;
  team_.half_bytes = static_cast<std::uint64_t>(binding.half_bytes);
  team_.timeout_ns = binding.timeout_ns;
  team_.rank = binding.rank;
  team_.world = binding.world;
  team_.tag = binding.tag;
  for (const std::int64_t offset : offsets) {
    team::PeersArgument& peers = peers_.emplace_back();
    for (std::size_t rank = 0; rank < ranks; ++rank) peers.of[rank] = team::in_first_half(binding.memory[rank], offset);
  }
}

void refuse_without_team(const std::string& op) {
  throw Error(
      ErrorKind::bad_input,
      fmt::format("op '{}' is computed by a team of ranks, and none was given; make the engine with a team", op));
}

}  // namespace kiln::jit
