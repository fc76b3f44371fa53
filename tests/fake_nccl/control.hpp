// What a test may ask of the fake NCCL beyond NCCL's own calls: C functions that libnccl.so exports.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/nccl_api.hpp"

/// Where the ranks of a communicator exchange. All of it is zero at first, in memory that their processes share.
struct FakeNcclBoard {
  static constexpr int most_ranks = 16;
  struct Place {
    std::atomic<int> given{0},
        taken{0};  // collectives that the rank has given its bytes to, and has taken all ranks' of
    char bytes[4096] = {};
  };
  Place places[most_ranks];
};

#pragma GCC visibility push(default)
extern "C" {

/// A communicator, which lives as long as the process.
ncclComm_t fake_nccl_communicator(FakeNcclBoard* board, int rank, int world, int device);
/// From now on the communicator has failed so.
void fake_nccl_fail(ncclComm_t communicator, ncclResult_t result);

}  // extern "C"
#pragma GCC visibility pop
