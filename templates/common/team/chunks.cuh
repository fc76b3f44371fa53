// A rank's part cut into chunks, each with a flag of its own, and where a chunk lies in a symmetric workspace.
#pragma once

#include "common/team/signals.cuh"

namespace kiln::team {

/// Chunks are equal on all ranks, whose parts may differ in length. Chunk i of each rank lies beside chunk i of the others, so that places
/// depend on no length. A part without words has one chunk all the same, whose flag says so.
template <int World>
struct Chunks {
  int words;  // of 16 bytes, of a chunk
  int most;   // chunks of the longest part

  __device__ __forceinline__ int count(long long part_words) const {
    return static_cast<int>(max((part_words + words - 1) / words, 1ll));
  }
  __device__ __forceinline__ long long first(int chunk) const { return static_cast<long long>(chunk) * words; }
  /// Words of a part's chunk, 0 past the part's end.
  __device__ __forceinline__ int size(int chunk, long long part_words) const {
    return static_cast<int>(max(min(part_words - first(chunk), static_cast<long long>(words)), 0ll));
  }
  /// A chunk of `rank`'s part in the workspace at `workspace`.
  __device__ __forceinline__ uint4* place(unsigned char* workspace, int chunk, int rank) const {
    return reinterpret_cast<uint4*>(workspace) + (static_cast<long long>(chunk) * World + rank) * words;
  }
};

/// The rank that follows `rank` by `steps`, from 0 to World.
template <int World>
__device__ __forceinline__ int following(int rank, int steps) {
  return rank + steps < World ? rank + steps : rank + steps - World;
}

}  // namespace kiln::team
