// y = (x + bias) * factor; bias may be null. A block a row; y and the copy are dense.
#include "common/length.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"
#include "common/view.cuh"

template <typename T>
__device__ __forceinline__ float scaled(T x, const T* bias, long long column, float factor) {
  return (kiln::to_float(x) + (bias != nullptr ? kiln::to_float(bias[column]) : 0.0f)) * factor;
}

template <typename T>
__global__ __launch_bounds__(128) void scale_reference(const T* x, const T* bias, float* y, long long cols,
                                                       long long stride, float factor) {
  for (long long i = threadIdx.x; i < cols; i += 128)
    y[blockIdx.x * cols + i] = scaled(x[blockIdx.x * stride + i], bias, i, factor);
}

template <typename T, int Threads, int Vector>
__global__ __launch_bounds__(Threads) void scale_tiled(kiln::view<const T, 1> x, const T* bias, T* y, long long cols,
                                                       float factor, kiln::axis_length rows) {
  if (blockIdx.x >= rows.read()) return;
  for (long long i = threadIdx.x * Vector; i < cols; i += Threads * Vector) {
    auto values = kiln::load<Vector>(x.address + blockIdx.x * x.strides[0] + i);
#pragma unroll
    for (int j = 0; j < Vector; ++j) values.at[j] = kiln::from_float<T>(scaled(values.at[j], bias, i + j, factor));
    kiln::store<Vector>(y + blockIdx.x * cols + i, values);
  }
}

template <typename T>
__global__ __launch_bounds__(32) void scale_copy(const T* x, T* copy, long long cols, long long stride,
                                                 kiln::axis_length rows) {
  if (blockIdx.x >= rows.read()) return;
  for (long long i = threadIdx.x; i < cols; i += 32) copy[blockIdx.x * cols + i] = x[blockIdx.x * stride + i];
}

template <typename T>
__global__ __launch_bounds__(32) void scale_plain(const T* copy, const T* bias, T* y, long long cols, float factor,
                                                  kiln::axis_length rows) {
  if (blockIdx.x >= rows.read()) return;
  for (long long i = threadIdx.x; i < cols; i += 32) {
    y[blockIdx.x * cols + i] = kiln::from_float<T>(scaled(copy[blockIdx.x * cols + i], bias, i, factor));
  }
}
