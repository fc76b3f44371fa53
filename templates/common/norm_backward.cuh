// Backward of the norms, with g = dy * weight, x^ = (x - mean) * scale, and means over a row:
//
//   dx = scale * (g - mean(g) - x^ * mean(g * x^)) [+ d_sum]     without mean(g) where the norm takes no mean away
//   dweight = sum over rows of dy * x^,  dbias = sum over rows of dy
//
// Statistics come from x again, which is read anyway. Sums over rows are made in two steps, each in one order, so that they come out the
// same at each launch: partial sums of the rows that a block takes, then those of all blocks (common/norm_backward_sum.cuh).
#pragma once

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/norm.cuh"

namespace kiln {

/// Strides in elements. d_sum: the gradient of the sum that was normalised by its other use, where a residual was added.
template <typename T>
struct norm_gradients {
  const T* x;
  const T* weight;
  const T* dy;
  const T* d_sum;
  T* dx;
  long long x_row_stride, dy_row_stride, d_sum_row_stride, dx_row_stride;
};

/// Floats from one block's partial sums to the next one's.
__device__ __forceinline__ long long partial_stride(int cols) { return (cols + 7) / 8 * 8; }

/// Two sums made at once.
struct float_pair {
  float first, second;
  __device__ __forceinline__ float_pair operator+(float_pair other) const {
    return {first + other.first, second + other.second};
  }
};
__device__ __forceinline__ float_pair shuffle_xor(float_pair value, int mask) {
  return {shuffle_xor(value.first, mask), shuffle_xor(value.second, mask)};
}

/// What a row's gradient is made with.
struct gradient_statistics {
  float mean, scale;
  float g_mean;       // 0 for rms_norm
  float g_projected;  // mean(g * x^)

  __device__ __forceinline__ float normed(float x) const { return (x - mean) * scale; }
  __device__ __forceinline__ float dx(float g, float normed) const {
    return scale * (g - g_mean - normed * g_projected);
  }
};

/// `measured(f)` is this thread's sum of f(x, g) over its part of the row, zeros past its end not among them.
template <norm_kind Kind, typename Measured, typename Sum>
__device__ __forceinline__ gradient_statistics gradient_statistics_of(Measured& measured, Sum& sum, int cols,
                                                                      float epsilon) {
  const float each = 1.0f / static_cast<float>(cols);  // the same for every row
  float_pair means{0, 0};
  if constexpr (Kind == norm_kind::layer) {
    means = sum(measured([](float x, float g) { return float_pair{x, g}; }));
    means = {means.first * each, means.second * each};
  }
  const float mean = means.first;
  const float_pair products = sum(measured([mean](float x, float g) {
    return float_pair{(x - mean) * (x - mean), g * (x - mean)};
  }));
  const float scale = rsqrtf(products.first * each + epsilon);
  return {mean, scale, means.second, products.second * each * scale};
}

/// Rows that the blocks of a grid take in turn, Threads / Lanes rows at once, Stages turns of them under way in shared memory. A thread
/// reads only what it copied itself, always the same columns, so that copies need no barrier and sums over rows stay in registers. Rows
/// begin at multiples of 16 bytes and have at most Lanes * Items chunks of 16 bytes.
///
/// Dynamic shared memory: 16 bytes for each of (Stages * inputs + 1) * Items * Threads chunks.
template <norm_kind Kind, residual_mode Residual, typename T, int Threads, int Lanes, int Items, int Stages>
class norm_backward_rows {
 public:
  static constexpr int rows_at_once = Threads / Lanes;

  __device__ __forceinline__ norm_backward_rows(const norm_gradients<T>& tensors, int rows, int cols)
      : tensors_(tensors), rows_(rows), cols_(cols) {
    extern __shared__ uint4 norm_backward_chunks[];
    mine_ = norm_backward_chunks + threadIdx.x;
    lane_ = threadIdx.x % Lanes;
    group_ = threadIdx.x / Lanes;
  }

  /// partial: of this block; dbias follows dweight after `bias_partial` floats, for layer_norm.
  __device__ __forceinline__ void run(float epsilon, float* partial, long long bias_partial, float_pair* scratch) {
    const int step = gridDim.x * rows_at_once;
    int base = blockIdx.x * rows_at_once;
    prepare();
#pragma unroll 1
    for (int stage = 0; stage < Stages; ++stage) copy_row(stage, base + group_ + stage * step);
    row_sum<Lanes, float_pair> sum{scratch};
    for (int stage = 0; base < rows_; base += step) {
      cp_async_wait<Stages - 1>();
      take_row(stage, base + group_, epsilon, sum);
      copy_row(stage, base + group_ + Stages * step);
      stage = stage + 1 == Stages ? 0 : stage + 1;
    }
    launch_dependents();
    cp_async_wait<0>();
    store_partial_sum(weight_sums_, partial);
    if constexpr (Kind == norm_kind::layer) store_partial_sum(bias_sums_, partial + bias_partial);
  }

 private:
  static constexpr int n = 16 / sizeof(T);
  static constexpr int inputs = Residual == residual_mode::add ? 3 : 2;
  enum input { of_x, of_dy, of_d_sum };

  __device__ __forceinline__ uint4& slot(int stage, int input, int item) {
    return mine_[((stage * inputs + input) * Items + item) * Threads];
  }
  __device__ __forceinline__ uint4& weight_slot(int item) { return mine_[(Stages * inputs * Items + item) * Threads]; }
  __device__ __forceinline__ int column(int item) const { return (item * Lanes + lane_) * n; }

  /// The weight's chunks, and zeros in the places of chunks past the row's end, which no copy ever fills.
  __device__ __forceinline__ void prepare() {
    const T zero = from_float<T>(0);
    const bool aligned = is_aligned<16>(tensors_.weight);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(item);
      weight_slot(item) = aligned && first + n <= cols_ ? load_packed<n>(tensors_.weight + first)
                                                        : load_partial<n>(tensors_.weight, first, cols_, zero);
#pragma unroll
      for (int i = 0; i < n; ++i) weight_sums_[item].at[i] = bias_sums_[item].at[i] = 0;
      if (first < cols_) continue;
      for (int stage = 0; stage < Stages; ++stage)
        for (int input = 0; input < inputs; ++input) slot(stage, input, item) = uint4{0, 0, 0, 0};
    }
  }

  __device__ __forceinline__ void copy_chunk(uint4& to, const T* row, int first) {
    if (first + n <= cols_) {
      cp_async_16(shared_address(&to), row + first, true);
    } else if (first < cols_) {
      to = load_partial<n>(row, first, cols_, from_float<T>(0));
    }
  }
  __device__ __forceinline__ void copy_row(int stage, int row) {
    if (row < rows_) {
#pragma unroll
      for (int item = 0; item < Items; ++item) {
        const int first = column(item);
        copy_chunk(slot(stage, of_x, item), tensors_.x + row * tensors_.x_row_stride, first);
        copy_chunk(slot(stage, of_dy, item), tensors_.dy + row * tensors_.dy_row_stride, first);
        if constexpr (Residual == residual_mode::add)
          copy_chunk(slot(stage, of_d_sum, item), tensors_.d_sum + row * tensors_.d_sum_row_stride, first);
      }
    }
    cp_async_commit();
  }

  /// What gradient_statistics_of asks of the row in a stage.
  struct staged_row {
    norm_backward_rows& rows;
    int stage;

    template <typename Measure>
    __device__ __forceinline__ float_pair operator()(Measure measure) {
      float_pair total{0, 0};
#pragma unroll
      for (int item = 0; item < Items; ++item) {
        const vec<T, n> x = unpack<T, n>(rows.slot(stage, of_x, item));
        const vec<T, n> dy = unpack<T, n>(rows.slot(stage, of_dy, item));
        const vec<T, n> weight = unpack<T, n>(rows.weight_slot(item));
        const int inside = rows.cols_ - rows.column(item);
        // Past its end a row has zeros, of which only deviations from a mean are none.
        if (Kind == norm_kind::rms || inside >= n) {
#pragma unroll
          for (int i = 0; i < n; ++i)
            total = total + measure(to_float(x.at[i]), to_float(dy.at[i]) * to_float(weight.at[i]));
        } else {
#pragma unroll
          for (int i = 0; i < n; ++i)
            if (i < inside) total = total + measure(to_float(x.at[i]), to_float(dy.at[i]) * to_float(weight.at[i]));
        }
      }
      return total;
    }
  };

  template <typename Sum>
  __device__ __forceinline__ void take_row(int stage, int row, float epsilon, Sum& sum) {
    staged_row measured{*this, stage};
    const gradient_statistics row_is = gradient_statistics_of<Kind>(measured, sum, cols_, epsilon);
    if (row >= rows_) return;
    T* const target = tensors_.dx + row * tensors_.dx_row_stride;
#pragma unroll
    for (int item = 0; item < Items; ++item) take_chunk(stage, item, row_is, target);
  }

  __device__ __forceinline__ void take_chunk(int stage, int item, const gradient_statistics& row_is, T* target) {
    const vec<T, n> x = unpack<T, n>(slot(stage, of_x, item));
    const vec<T, n> dy = unpack<T, n>(slot(stage, of_dy, item));
    const vec<T, n> weight = unpack<T, n>(weight_slot(item));
    vec<T, n> d_sum{};
    if constexpr (Residual == residual_mode::add) d_sum = unpack<T, n>(slot(stage, of_d_sum, item));
    vec<T, n> dx;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float normed = row_is.normed(to_float(x.at[i]));
      const float given = to_float(dy.at[i]);
      float gradient = row_is.dx(given * to_float(weight.at[i]), normed);
      if constexpr (Residual == residual_mode::add) gradient += to_float(d_sum.at[i]);
      dx.at[i] = from_float<T>(gradient);
      weight_sums_[item].at[i] += given * normed;
      if constexpr (Kind == norm_kind::layer) bias_sums_[item].at[i] += given;
    }
    const int first = column(item);
    if (first + n <= cols_) {
      store(target + first, dx);
    } else {
      kiln::store_partial<n>(target, first, cols_, pack(dx));
    }
  }

  /// The rows that the block took at once, added up in their order, in shared memory that no copy uses any more.
  __device__ __forceinline__ void store_partial_sum(vec<float, n> (&sums)[Items], float* partial) {
    constexpr int quads = n / 4;
    if constexpr (rows_at_once > 1) {
      extern __shared__ uint4 norm_backward_chunks[];
      float4* const others = reinterpret_cast<float4*>(norm_backward_chunks) + lane_;
      constexpr int each = Items * quads * Lanes;
      __syncthreads();
#pragma unroll
      for (int item = 0; item < Items; ++item)
#pragma unroll
        for (int quad = 0; quad < quads; ++quad) {
          const float* from = &sums[item].at[quad * 4];
          if (group_ > 0)
            others[(group_ - 1) * each + (item * quads + quad) * Lanes] = float4{from[0], from[1], from[2], from[3]};
        }
      __syncthreads();
      if (group_ > 0) return;
      for (int group = 0; group < rows_at_once - 1; ++group) {
#pragma unroll
        for (int item = 0; item < Items; ++item)
#pragma unroll
          for (int quad = 0; quad < quads; ++quad) {
            const float4 other = others[group * each + (item * quads + quad) * Lanes];
            sums[item].at[quad * 4] += other.x;
            sums[item].at[quad * 4 + 1] += other.y;
            sums[item].at[quad * 4 + 2] += other.z;
            sums[item].at[quad * 4 + 3] += other.w;
          }
      }
    }
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      if (column(item) >= cols_) continue;
#pragma unroll
      for (int quad = 0; quad < quads; ++quad) {
        const float* from = &sums[item].at[quad * 4];
        *reinterpret_cast<float4*>(partial + column(item) + quad * 4) = float4{from[0], from[1], from[2], from[3]};
      }
    }
  }

  const norm_gradients<T>& tensors_;
  int rows_, cols_, lane_, group_;
  uint4* mine_;
  vec<float, n> weight_sums_[Items];
  vec<float, n> bias_sums_[Items];  // of layer_norm
};

}  // namespace kiln
