// Backward of the norms in two readings, for rows of any length and alignment: by rows, then by columns.
#pragma once

#include "common/length.cuh"
#include "common/norm_backward.cuh"
#include "common/view.cuh"

namespace kiln {

/// A row of any length in pieces, which are what a block's threads hold at once.
template <int Threads, int N, typename T>
struct gradient_row {
  using share = row_share<T, Threads, N, 1>;
  const T* x;
  const T* weight;
  const T* dy;
  int cols, peel;

  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  __device__ __forceinline__ int peel_at(int first) const { return first == 0 ? peel : 0; }
  __device__ __forceinline__ int after(int first) const { return first + peel_at(first) + Threads * N; }
  __device__ __forceinline__ share load(const T* from, int first) const {
    return share::load_beside(from + first, cols - first, threadIdx.x, peel_at(first), from_float<T>(0));
  }

  /// What gradient_statistics_of asks of a row.
  template <typename Measure>
  __device__ __forceinline__ auto operator()(Measure measure) {
    decltype(measure(0.0f, 0.0f)) total{};
    for (int first = 0; first < cols; first = after(first)) {
      const share xs = load(x, first), dys = load(dy, first), weights = load(weight, first);
      const int front = peel_at(first);
      if (threadIdx.x < front)
        total = total + measure(to_float(xs.front), to_float(dys.front) * to_float(weights.front));
      const int inside = cols - first - share::column(threadIdx.x, front, 0);
      const vec<T, N> x_chunk = unpack<T, N>(xs.chunks[0]), dy_chunk = unpack<T, N>(dys.chunks[0]),
                      weight_chunk = unpack<T, N>(weights.chunks[0]);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < inside)
          total = total + measure(to_float(x_chunk.at[i]), to_float(dy_chunk.at[i]) * to_float(weight_chunk.at[i]));
    }
    return total;
  }
};

template <residual_mode Residual, typename T>
__device__ __forceinline__ T gradient_of(const gradient_statistics& row_is, T x, T dy, T weight, T d_sum) {
  float made = row_is.dx(to_float(dy) * to_float(weight), row_is.normed(to_float(x)));
  if constexpr (Residual == residual_mode::add) made += to_float(d_sum);
  return from_float<T>(made);
}

/// A row's dx by a block; returns its mean and scale. The row is read twice, and a third time for a mean.
template <norm_kind Kind, residual_mode Residual, int Threads, int N, typename T>
__device__ __forceinline__ float2 row_backward(const norm_gradients<T>& tensors, long long row, int cols, float epsilon,
                                               typename gradient_sums<Kind, Threads>::scratch& scratch) {
  using pieces = gradient_row<Threads, N, T>;
  using share = typename pieces::share;
  const T* const x = tensors.x + row * tensors.x_row_stride;
  const T* const d_sum = tensors.d_sum + row * tensors.d_sum_row_stride;
  T* const dx = tensors.dx + row * tensors.dx_row_stride;
  pieces whole{x, tensors.weight, tensors.dy + row * tensors.dy_row_stride, cols, peel_of<N>(x, cols)};
  gradient_sums<Kind, Threads> sums(scratch);
  const gradient_statistics row_is = gradient_statistics_of<Kind>(whole, sums, cols, epsilon);

  for (int first = 0; first < cols; first = whole.after(first)) {
    const share xs = whole.load(x, first), dys = whole.load(whole.dy, first), weights = whole.load(whole.weight, first);
    const share d_sums = Residual == residual_mode::add ? whole.load(d_sum, first) : share{};
    const vec<T, N> x_chunk = unpack<T, N>(xs.chunks[0]), dy_chunk = unpack<T, N>(dys.chunks[0]),
                    weight_chunk = unpack<T, N>(weights.chunks[0]), d_sum_chunk = unpack<T, N>(d_sums.chunks[0]);
    vec<T, N> made;
#pragma unroll
    for (int i = 0; i < N; ++i)
      made.at[i] = gradient_of<Residual>(row_is, x_chunk.at[i], dy_chunk.at[i], weight_chunk.at[i], d_sum_chunk.at[i]);
    share made_share;
    made_share.front = gradient_of<Residual>(row_is, xs.front, dys.front, weights.front, d_sums.front);
    made_share.chunks[0] = pack(made);
    made_share.store_row(dx + first, cols - first, threadIdx.x, whole.peel_at(first));
  }
  return float2{row_is.mean, row_is.scale};
}

/// A block a row: dx, and the row's statistics for the sums over rows.
template <norm_kind Kind, typename T, int Threads, int N, residual_mode Residual>
__global__ __launch_bounds__(Threads) void norm_backward_row(const __grid_constant__ norm_gradients<T> given,
                                                             float2* statistics, axis_length rows_given, long long cols,
                                                             float epsilon) {
  __shared__ typename gradient_sums<Kind, Threads>::scratch scratch;
  wait_for_predecessor();
  if (blockIdx.x >= rows_given.read()) return;
  const norm_gradients<T> tensors = in_registers(given);
  statistics[blockIdx.x] =
      row_backward<Kind, Residual, Threads, N>(tensors, blockIdx.x, static_cast<int>(cols), epsilon, scratch);
}

/// Partial sums of a column over one of gridDim.y shares of the rows, a thread a column. `partial` is as norm_backward_sum reads it:
/// gridDim.y parts, all of them written where there is a row for each.
template <norm_kind Kind, typename T>
__global__ __launch_bounds__(128) void norm_backward_columns(view<const T, 1> x, view<const T, 1> dy,
                                                             const float2* statistics, float* partial,
                                                             axis_length rows_given, long long columns) {
  wait_for_predecessor();
  const int rows = rows_given.read(), cols = static_cast<int>(columns);
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int parts = gridDim.y;
  const int part = blockIdx.y;
  if (column >= cols || part >= rows) return;
  float weight_sum = 0, bias_sum = 0;
#pragma unroll 8
  for (int row = part; row < rows; row += parts) {
    const float2 row_is = statistics[row];
    const float given = to_float(dy.address[row * dy.strides[0] + column]);
    weight_sum += given * ((to_float(x.address[row * x.strides[0] + column]) - row_is.x) * row_is.y);
    bias_sum += given;
  }
  const long long stride = partial_stride(cols);
  partial[part * stride + column] = weight_sum;
  if constexpr (Kind == norm_kind::layer) partial[(parts + part) * stride + column] = bias_sum;
}

}  // namespace kiln
