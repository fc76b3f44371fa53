// Empties L2 of what the run before left, by reading a buffer that is larger. Unlike a fill this leaves no lines to be
// written back while the next run is timed.
//
//   evict_lines(const uint4* data, long long count, unsigned* sink)
//       count pieces of 16 bytes, all zero. Any grid and block: threads stride over them. Nothing is written; `sink` keeps the reads.
#pragma once

#include "common/types.cuh"

namespace kiln {

__global__ __launch_bounds__(1024) void evict_lines(const uint4* data, long long count, unsigned* sink) {
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  unsigned seen = 0;
#pragma unroll 8
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
    const uint4 piece = data[i];
    seen |= piece.x | piece.y | piece.z | piece.w;
  }
  if (seen != 0) *sink = seen;
}

}  // namespace kiln
