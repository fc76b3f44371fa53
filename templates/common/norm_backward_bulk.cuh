// Backward of the norms by blocks that stay: rows come whole into shared memory, and are read from there once.
#pragma once

#include "common/bulk_copy.cuh"
#include "common/length.cuh"
#include "common/norm_backward.cuh"

namespace kiln {

/// Rows that the blocks of a grid take in turn, Stages of them under way. Each has Threads * Items chunks of 16 bytes
/// and lies at a multiple of 16 bytes. A thread keeps what it has read in registers until its part of dx is made. So a
/// place is free for the next row once the row's sums are known. Weight begins at a multiple of 16 bytes, too.
///
/// Dynamic shared memory: 16 bytes for each of Stages * inputs * Items * Threads chunks.
template <norm_kind Kind, residual_mode Residual, typename T, int Threads, int Items, int Stages>
class norm_backward_bulk_rows {
 public:
  using sums_type = gradient_sums<Kind, Threads>;
  using ring_type = bulk_ring<Stages>;
  struct storage {
    typename ring_type::storage ring;
    typename sums_type::scratch sums;
  };

  __device__ __forceinline__ norm_backward_bulk_rows(const norm_gradients<T>& tensors, int rows, storage& shared)
      : tensors_(tensors), rows_(rows), ring_(shared.ring), sums_(shared.sums) {}

  /// partial: of this block; dbias follows dweight after `bias_partial` floats, for layer_norm.
  __device__ __forceinline__ void run(float epsilon, float* partial, long long bias_partial) {
    int row = blockIdx.x;
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int stage = 0; stage < Stages; ++stage) copy_row(stage, row + stage * gridDim.x);
    }
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      weights_[item] = load_packed<n>(tensors_.weight + column(item));
#pragma unroll
      for (int i = 0; i < n; ++i) weight_sums_[item].at[i] = bias_sums_[item].at[i] = 0;
    }
    for (; row < rows_; row += gridDim.x) {
      ring_.wait();
      take_row(row, epsilon);
      ring_.advance();
    }
    launch_dependents();
    store_sums(weight_sums_, partial);
    if constexpr (Kind == norm_kind::layer) store_sums(bias_sums_, partial + bias_partial);
  }

 private:
  static constexpr int n = 16 / sizeof(T);
  static constexpr int cols = Threads * Items * n;
  static constexpr int inputs = Residual == residual_mode::add ? 3 : 2;
  static constexpr unsigned row_bytes = cols * sizeof(T);
  enum input { of_x, of_dy, of_d_sum };
  using chunk = vec<float, n>;

  static __device__ __forceinline__ int column(int item) { return (item * Threads + threadIdx.x) * n; }
  static __device__ __forceinline__ uint4& slot(int stage, int input, int item) {
    extern __shared__ uint4 norm_backward_bulk_chunks[];
    return norm_backward_bulk_chunks[((stage * inputs + input) * Items + item) * Threads + threadIdx.x];
  }

  /// By the first thread, whose slots a row's inputs begin with.
  __device__ __forceinline__ void copy_row(int stage, int row) {
    if (row >= rows_) return;
    const unsigned barrier = ring_.barrier(stage);
    mbarrier_arrive_expect_tx(barrier, inputs * row_bytes);
    bulk_load(shared_address(&slot(stage, of_x, 0)), tensors_.x + row * tensors_.x_row_stride, row_bytes, barrier);
    bulk_load(shared_address(&slot(stage, of_dy, 0)), tensors_.dy + row * tensors_.dy_row_stride, row_bytes, barrier);
    if constexpr (Residual == residual_mode::add) {
      bulk_load(shared_address(&slot(stage, of_d_sum, 0)), tensors_.d_sum + row * tensors_.d_sum_row_stride, row_bytes,
                barrier);
    }
  }

  /// What gradient_statistics_of asks of a row in registers.
  struct held_row {
    const chunk (&x)[Items];
    const chunk (&g)[Items];

    template <typename Measure>
    __device__ __forceinline__ auto operator()(Measure measure) const {
      decltype(measure(0.0f, 0.0f)) total{};
#pragma unroll
      for (int item = 0; item < Items; ++item)
#pragma unroll
        for (int i = 0; i < n; ++i) total = total + measure(x[item].at[i], g[item].at[i]);
      return total;
    }
  };

  __device__ __forceinline__ void take_row(int row, float epsilon) {
    const int stage = ring_.stage();
    chunk x[Items], dy[Items], g[Items];
    uint4 d_sums[Items];
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      x[item] = to_floats<T, n>(slot(stage, of_x, item));
      dy[item] = to_floats<T, n>(slot(stage, of_dy, item));
      if constexpr (Residual == residual_mode::add) d_sums[item] = slot(stage, of_d_sum, item);
      const chunk weight = to_floats<T, n>(weights_[item]);
#pragma unroll
      for (int i = 0; i < n; ++i) g[item].at[i] = dy[item].at[i] * weight.at[i];
    }
    held_row measured{x, g};
    const gradient_statistics row_is = gradient_statistics_of<Kind>(measured, sums_, cols, epsilon);
    if (threadIdx.x == 0) copy_row(stage, row + Stages * gridDim.x);  // past their barrier all have read theirs

    T* const target = tensors_.dx + row * tensors_.dx_row_stride;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      chunk dx;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float normed = row_is.normed(x[item].at[i]);
        dx.at[i] = row_is.dx(g[item].at[i], normed);
        weight_sums_[item].at[i] += dy[item].at[i] * normed;
        if constexpr (Kind == norm_kind::layer) bias_sums_[item].at[i] += dy[item].at[i];
      }
      if constexpr (Residual == residual_mode::add) {
        const chunk d_sum = to_floats<T, n>(d_sums[item]);
#pragma unroll
        for (int i = 0; i < n; ++i) dx.at[i] += d_sum.at[i];
      }
      store_packed<n>(target + column(item), from_floats<T, n>(dx));
    }
  }

  static __device__ __forceinline__ void store_sums(const chunk (&sums)[Items], float* partial) {
#pragma unroll
    for (int item = 0; item < Items; ++item)
#pragma unroll
      for (int i = 0; i < n; i += 4) {
        const float* from = &sums[item].at[i];
        *reinterpret_cast<float4*>(partial + column(item) + i) = float4{from[0], from[1], from[2], from[3]};
      }
  }

  const norm_gradients<T>& tensors_;
  int rows_;
  ring_type ring_;
  sums_type sums_;
  uint4 weights_[Items];
  chunk weight_sums_[Items];
  chunk bias_sums_[Items];  // of layer_norm
};

/// Blocks: that a multiprocessor holds at once. partial: for each block the sums over its rows that make dweight, then, for layer_norm, the
/// same for dbias.
template <norm_kind Kind, typename T, int Threads, int Items, int Stages, int Blocks, residual_mode Residual>
__global__ __launch_bounds__(Threads, Blocks) void norm_backward_bulk(const __grid_constant__ norm_gradients<T> given,
                                                                      float* partial, axis_length rows_given,
                                                                      long long cols, float epsilon) {
  using rows_of = norm_backward_bulk_rows<Kind, Residual, T, Threads, Items, Stages>;
  __shared__ typename rows_of::storage shared;
  wait_for_predecessor();
  const int rows = rows_given.read();
  if (blockIdx.x >= rows) return;
  const norm_gradients<T> tensors = in_registers(given);
  const long long stride = partial_stride(static_cast<int>(cols));
  rows_of(tensors, rows, shared)
      .run(epsilon, partial + blockIdx.x * stride, Kind == norm_kind::layer ? gridDim.x * stride : 0);
}

}  // namespace kiln
