#include "common/dependent_launch.cuh"

template <bool Waits>
__global__ __launch_bounds__(256) void doubled(const float* x, float* y, long long count) {
  if (Waits) kiln::wait_for_predecessor();
  kiln::launch_dependents();
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = 2 * x[i];
}
