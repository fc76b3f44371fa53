// Candidates that fault or never end, beside good ones: what a tune must survive.
#include "common/types.cuh"

template <typename T>
__global__ __launch_bounds__(128) void hostile_reference(const T* x, float* y, long long rows) {
  const long long row = blockIdx.x * 128LL + threadIdx.x;
  if (row < rows) y[row] = 2.0f * kiln::to_float(x[row]);
}

template <int Harm, int Threads>
__global__ __launch_bounds__(Threads) void hostile_candidate(const float* x, float* y, long long rows) {
  const long long row = static_cast<long long>(blockIdx.x) * Threads + threadIdx.x;
  if constexpr (Harm == 1) *reinterpret_cast<volatile float*>(8ull) = 1.0f;
  if constexpr (Harm == 2) {
    volatile const float* watched = x;
    while (watched[0] == watched[0]) {
    }
  }
  if constexpr (Harm == 3) asm volatile("trap;");
  if constexpr (Harm == 4) y[row + (1ll << 36)] = 1.0f;
  if (row < rows) y[row] = 2.0f * x[row];
}
