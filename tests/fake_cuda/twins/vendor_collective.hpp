// What the fake NCCL launches: its one kernel takes all of this by value, and exchanges through memory that the ranks' processes share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

/// All zero at first.
struct CollectiveBoard {
  static constexpr int most_ranks = 16;
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 20;
  struct Place {
    std::atomic<int> joined, left;
    std::atomic<std::int64_t> given,
        taken;  // collectives that the rank has given its bytes to, and has taken all ranks' of
    std::byte bytes[most_bytes];
  };
  Place places[most_ranks];
};

struct VendorCollective {
  enum class Kind : std::uint8_t { all_gather, reduce_scatter, all_reduce };
  CollectiveBoard* board = nullptr;
  const std::atomic<bool>* aborted = nullptr;
  CUdeviceptr source = 0, destination = 0;
  std::int64_t count = 0;  // elements of one rank's part; of all_reduce: of the source
  int rank = 0, world = 1;
  unsigned type = 0;  // ncclDataType_t: bytes, f16, f32 or bf16
  Kind kind = Kind::all_gather;
};

}  // namespace fake_cuda
