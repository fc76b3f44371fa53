// Words that are written late: lengths on the device and prepared inputs, which a kernel that does not wait for its predecessor reads too
// early.
//
//   copy_late(int* to, const int* from, long long count, long long cycles)
//       Any grid and block: threads stride over the words. It waits so many clock cycles before its first write, having let its successor begin, and ends after its predecessor,
//       as refill_values of fill.cuh does.
#pragma once

#include "common/dependent_launch.cuh"

namespace kiln {

__global__ __launch_bounds__(1024) void copy_late(int* to, const int* from, long long count, long long cycles) {
  launch_dependents();
  for (const long long begin = clock64(); clock64() - begin < cycles;) {
  }
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads)
    to[i] = from[i];
  wait_for_predecessor();
}

}  // namespace kiln
