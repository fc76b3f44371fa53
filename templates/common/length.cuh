// The length of an axis that op.toml declares on_device: given by the launch, or held in device memory until the kernel runs.
#pragma once

#include "common/dependent_launch.cuh"

namespace kiln {

/// What `{ length = "axis" }` passes. Grids, strides and workspaces are sized by the bound; what lies past the length is neither read into
/// a result nor written.
struct axis_length {
  const int* on_device;        // null: the bound is the length
  unsigned long long* report;  // where a length outside [0, bound] is told to the host; may be null
  int bound;
  int unused;

  /// Between 0 and the bound. Any thread may call it; where the length is in memory, it waits for the predecessor.
  __device__ __forceinline__ int read() const {
    if (on_device == nullptr) return bound;
    wait_for_predecessor();
    const int length = *static_cast<const volatile int*>(on_device);
    if (length < 0 || length > bound) tell(length);
    return min(max(length, 0), bound);
  }

 private:
  /// One thread's word is enough: the bound above, the length below.
  __device__ __forceinline__ void tell(int length) const {
    const bool first = (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x | threadIdx.y | threadIdx.z) == 0;
    if (first && report != nullptr)
      *static_cast<volatile unsigned long long*>(report) =
          static_cast<unsigned long long>(bound) << 32 | static_cast<unsigned>(length);
  }
};

}  // namespace kiln
