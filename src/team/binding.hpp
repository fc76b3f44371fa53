// What an executable of a team op is told of its team.
#pragma once

#include <array>
#include <cstdint>

#include "team/protocol.hpp"

namespace kiln::team {

class NcclCommunicator;

/// Constant for an executable's life.
struct TeamBinding {
  std::array<std::uint64_t, most_ranks>
      memory{};  // where this rank reaches the symmetric memory of each; 0 past the last
  std::int32_t rank = 0, world = 1;
  std::int64_t half_bytes = 0;  // of each half of the symmetric memory: half_bytes() of its bytes
  std::uint64_t timeout_ns = 0;
  std::uint32_t tag = 0;                   // of the plan, 16 bits: equal on all ranks
  std::uint64_t report = 0;                // address of this rank's Report on the device
  const NcclCommunicator* nccl = nullptr;  // null: NCCL serves no op of the team
};

/// Where a symmetric workspace begins that lies `offset` bytes into the first half of a memory.
constexpr std::uint64_t in_first_half(std::uint64_t memory, std::int64_t offset) {
  return memory + static_cast<std::uint64_t>(control_bytes + offset);
}
/// The bytes of symmetric memory that `half` bytes of symmetric workspaces need.
constexpr std::int64_t bytes_for_half(std::int64_t half) { return control_bytes + 2 * half; }

}  // namespace kiln::team
