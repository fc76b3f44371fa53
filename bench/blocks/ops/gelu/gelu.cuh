// gelu and its derivative, of rows that may be parts of wider ones.
#include "common/types.cuh"
#include "common/vector.cuh"

enum class Direction { forward, backward };

/// x * Phi(x), or its derivative Phi(x) + x * phi(x) times dy.
template <Direction Way, typename Real>
__device__ __forceinline__ Real gelu_of(Real x, Real dy) {
  const Real below = Real(0.5) * (Real(1) + erf(x * Real(0.70710678118654752)));
  if constexpr (Way == Direction::forward) {
    return x * below;
  } else {
    return dy * (below + x * Real(0.39894228040143268) * exp(Real(-0.5) * x * x));
  }
}

template <typename T, Direction Way>
__global__ __launch_bounds__(256) void gelu_reference(const T* x, const T* dy, float* y, long long cols,
                                                      long long x_row_stride, long long dy_row_stride,
                                                      long long y_row_stride) {
  const long long row = blockIdx.x;
  for (long long i = threadIdx.x; i < cols; i += 256) {
    const double gradient = Way == Direction::backward ? kiln::to_double(dy[row * dy_row_stride + i]) : 1.0;
    y[row * y_row_stride + i] =
        static_cast<float>(gelu_of<Way, double>(kiln::to_double(x[row * x_row_stride + i]), gradient));
  }
}

template <typename T, Direction Way, int Threads>
__global__ __launch_bounds__(Threads) void gelu(const T* x, const T* dy, T* y, long long rows, long long cols,
                                                long long x_row_stride, long long dy_row_stride,
                                                long long y_row_stride) {
  constexpr int width = 8;
  const long long col = (blockIdx.x * static_cast<long long>(Threads) + threadIdx.x) * width;
  if (col >= cols) return;
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
    const auto values = kiln::load<width>(x + row * x_row_stride + col);
    kiln::vec<T, width> gradients = {}, made;
    if constexpr (Way == Direction::backward) gradients = kiln::load<width>(dy + row * dy_row_stride + col);
#pragma unroll
    for (int j = 0; j < width; ++j)
      made.at[j] =
          kiln::from_float<T>(gelu_of<Way, float>(kiln::to_float(values.at[j]), kiln::to_float(gradients.at[j])));
    kiln::store<width>(y + row * y_row_stride + col, made);
  }
}
