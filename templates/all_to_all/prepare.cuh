#pragma once

namespace kiln {

/// One warp.
__global__ __launch_bounds__(32) void all_to_all_counts(int* counts, long long rows, long long world) {
  if (counts != nullptr && threadIdx.x < world) counts[threadIdx.x] = static_cast<int>(rows);
}

}  // namespace kiln
