// y = max(x, 0)^2 * scale. The same file holds the reference and the kernel that is tuned.
#include "common/types.cuh"
#include "common/vector.cuh"

template <typename T>
__device__ __forceinline__ float squared_relu_of(T x, float scale) {
  const float positive = kiln::to_float(x);
  return positive > 0 ? positive * positive * scale : positive != positive ? positive : 0.0f;  // a NaN stays one
}

/// Plain and in higher precision: outputs of a reference are float, whatever the type of the op.
template <typename T>
__global__ __launch_bounds__(256) void squared_relu_reference(const T* x, float* y, long long count, float scale) {
  for (long long i = blockIdx.x * 256LL + threadIdx.x; i < count; i += gridDim.x * 256LL)
    y[i] = squared_relu_of(x[i], scale);
}

/// `count` is the real length: nothing past it is read or written.
template <typename T, int Threads, int Vector>
__global__ __launch_bounds__(Threads) void squared_relu(const T* x, T* y, long long count, float scale) {
  const long long whole = count / Vector;
  const long long stride = static_cast<long long>(gridDim.x) * Threads;
  const long long first = static_cast<long long>(blockIdx.x) * Threads + threadIdx.x;
  for (long long i = first; i < whole; i += stride) {
    auto values = kiln::load<Vector>(x + i * Vector);
#pragma unroll
    for (int j = 0; j < Vector; ++j) values.at[j] = kiln::from_float<T>(squared_relu_of(values.at[j], scale));
    kiln::store<Vector>(y + i * Vector, values);
  }
  const long long i = whole * Vector + first;
  if (i < count) y[i] = kiln::from_float<T>(squared_relu_of(x[i], scale));
}
