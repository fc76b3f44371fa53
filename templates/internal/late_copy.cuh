// Words that are written late: lengths on the device, which a kernel that does not wait for its predecessor reads too early.
//
//   copy_late(int* to, const int* from, int count, long long cycles)
//       One block. It waits so many clock cycles before its first write, having let its successor begin, and ends after its predecessor,
//       as refill_values of fill.cuh does.
#pragma once

#include "common/dependent_launch.cuh"

namespace kiln {

__global__ __launch_bounds__(1024) void copy_late(int* to, const int* from, int count, long long cycles) {
  launch_dependents();
  for (const long long begin = clock64(); clock64() - begin < cycles;) {
  }
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) to[i] = from[i];
  wait_for_predecessor();
}

}  // namespace kiln
