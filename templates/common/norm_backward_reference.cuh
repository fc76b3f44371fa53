// Backward of the norms in double, in three passes: each row's statistics, which are left in dx; sums over rows; dx itself.
#pragma once

#include "common/norm_reference.cuh"

namespace kiln {

struct reference_statistics {
  double mean, scale;  // x^ = (x - mean) * scale
};

/// By a block of 256 threads; each gets them.
template <norm_kind Kind, typename T>
__device__ __forceinline__ reference_statistics reference_statistics_of(const T* x, long long cols, float epsilon) {
  __shared__ double scratch[8];
  double mean = 0;
  if constexpr (Kind == norm_kind::layer) {
    for (long long i = threadIdx.x; i < cols; i += 256) mean += to_double(x[i]);
    mean = block_sum(mean, scratch) / static_cast<double>(cols);
  }
  double squares = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) squares += (to_double(x[i]) - mean) * (to_double(x[i]) - mean);
  const double variance = block_sum(squares, scratch) / static_cast<double>(cols);
  return {mean, 1 / sqrt(variance + static_cast<double>(epsilon))};
}

/// In the first two elements of a row; the mean of a row of one is that one, so that only its scale is kept.
__device__ __forceinline__ void keep_statistics(float* dx, long long cols, reference_statistics of) {
  if (threadIdx.x != 0) return;
  dx[0] = static_cast<float>(of.scale);
  if (cols > 1) dx[1] = static_cast<float>(of.mean);
}

/// A block of 1024 threads makes 32 columns.
template <norm_kind Kind, typename T>
__device__ __forceinline__ void reference_parameters(const T* x, const T* dy, const float* dx, float* dweight,
                                                     float* dbias, long long rows, long long cols,
                                                     long long x_row_stride, long long dy_row_stride,
                                                     long long dx_row_stride) {
  __shared__ double weight_sums[32][33], bias_sums[32][33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long column = blockIdx.x * 32LL + lane;
  double weight_sum = 0, bias_sum = 0;
  for (long long row = warp; row < rows && column < cols; row += 32) {
    const double value = to_double(x[row * x_row_stride + column]);
    const double scale = to_double(dx[row * dx_row_stride]);
    double mean = 0;
    if constexpr (Kind == norm_kind::layer) mean = cols > 1 ? to_double(dx[row * dx_row_stride + 1]) : value;
    const double given = to_double(dy[row * dy_row_stride + column]);
    weight_sum += given * (value - mean) * scale;
    bias_sum += given;
  }
  weight_sums[warp][lane] = weight_sum;
  bias_sums[warp][lane] = bias_sum;
  __syncthreads();
  if (warp != 0 || column >= cols) return;
  for (int i = 1; i < 32; ++i) {
    weight_sum += weight_sums[i][lane];
    bias_sum += bias_sums[i][lane];
  }
  dweight[column] = static_cast<float>(weight_sum);
  if (dbias != nullptr) dbias[column] = static_cast<float>(bias_sum);
}

template <norm_kind Kind, residual_mode Residual, typename T>
__device__ __forceinline__ void reference_dx(const T* x, const T* weight, const T* dy, const T* d_sum, float* dx,
                                             long long cols, float epsilon) {
  __shared__ double scratch[8];
  const reference_statistics of = reference_statistics_of<Kind>(x, cols, epsilon);
  const auto normed = [&](long long i) { return (to_double(x[i]) - of.mean) * of.scale; };
  const auto g = [&](long long i) { return to_double(dy[i]) * to_double(weight[i]); };
  double g_sum = 0, projected_sum = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) {
    g_sum += g(i);
    projected_sum += g(i) * normed(i);
  }
  const double g_mean = Kind == norm_kind::layer ? block_sum(g_sum, scratch) / static_cast<double>(cols) : 0;
  const double projected = block_sum(projected_sum, scratch) / static_cast<double>(cols);
  for (long long i = threadIdx.x; i < cols; i += 256) {
    double gradient = of.scale * (g(i) - g_mean - normed(i) * projected);
    if constexpr (Residual == residual_mode::add) gradient += to_double(d_sum[i]);
    dx[i] = static_cast<float>(gradient);
  }
}

}  // namespace kiln
