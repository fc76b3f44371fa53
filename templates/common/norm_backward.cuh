// Backward of the norms, with g = dy * weight, x^ = (x - mean) * scale, and means over a row:
//
//   dx = scale * (g - mean(g) - x^ * mean(g * x^)) [+ d_sum]     without mean(g) where the norm takes no mean away
//   dweight = sum over rows of dy * x^,  dbias = sum over rows of dy
//
// Statistics come from x again, which is read anyway. Sums over rows are made in two steps, each in one order, so that
// they are equal at each launch. First come partial sums of the rows that a block takes, then those of all blocks
// (common/norm_backward_sum.cuh).
#pragma once

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/norm.cuh"

namespace kiln {

/// As the manifests' `pack` has them, strides in elements. d_sum: the gradient of the sum that was normalised by its other use, where a
/// residual was added.
template <typename T>
struct norm_gradients {
  const T* x;
  long long x_row_stride;
  const T* weight;
  const T* dy;
  long long dy_row_stride;
  const T* d_sum;
  long long d_sum_row_stride;
  T* dx;
  long long dx_row_stride;
};

/// As in_registers() of `common/view.cuh`.
template <typename T>
__device__ __forceinline__ norm_gradients<T> in_registers(const norm_gradients<T>& of) {
  norm_gradients<T> read;
  read.x = of.x;
  read.weight = of.weight;
  read.dy = of.dy;
  read.d_sum = of.d_sum;
  read.dx = of.dx;
  read.x_row_stride = of.x_row_stride;
  read.dy_row_stride = of.dy_row_stride;
  read.d_sum_row_stride = of.d_sum_row_stride;
  read.dx_row_stride = of.dx_row_stride;
  return read;
}

/// Floats from one block's partial sums to the next one's.
__device__ __forceinline__ long long partial_stride(int cols) { return (cols + 7) / 8 * 8; }

/// Sums made at once.
template <int N>
struct float_sums {
  float at[N];
  __device__ __forceinline__ float_sums operator+(const float_sums& other) const {
    float_sums sums;
#pragma unroll
    for (int i = 0; i < N; ++i) sums.at[i] = at[i] + other.at[i];
    return sums;
  }
};
template <int N>
__device__ __forceinline__ float_sums<N> shuffle_xor(const float_sums<N>& sums, int mask) {
  float_sums<N> theirs;
#pragma unroll
  for (int i = 0; i < N; ++i) theirs.at[i] = shuffle_xor(sums.at[i], mask);
  return theirs;
}

/// Shared memory of a block, and the sums over a row that Threads threads make in it.
template <norm_kind Kind, int Threads>
struct gradient_sums {
  using products_type = float_sums<Kind == norm_kind::layer ? 3 : 2>;
  struct scratch {
    float means[Kind == norm_kind::layer ? row_sum_scratch<Threads> : 1];
    products_type products[row_sum_scratch<Threads>];
  };
  row_sum<Threads> means;
  row_sum<Threads, products_type> products;
  __device__ __forceinline__ explicit gradient_sums(scratch& shared) : means{shared.means}, products{shared.products} {}
};

/// What a row's gradient is made with.
struct gradient_statistics {
  float mean, scale;
  float shift;             // x^ = x * scale + shift
  float constant, factor;  // dx = g * scale + x^ * factor + constant

  __device__ __forceinline__ float normed(float x) const { return x * scale + shift; }
  __device__ __forceinline__ float dx(float g, float normed) const { return g * scale + (normed * factor + constant); }
};

/// `measured(f)` is this thread's sum of f(x, g) over its part of the row, zeros past its end not among them.
template <norm_kind Kind, typename Measured, typename Sums>
__device__ __forceinline__ gradient_statistics gradient_statistics_of(Measured& measured, Sums& sums, int cols,
                                                                      float epsilon) {
  using products_type = typename Sums::products_type;
  const float each = 1.0f / static_cast<float>(cols);  // the same for every row
  if constexpr (Kind == norm_kind::layer) {
    const float mean = sums.means(measured([](float x, float) { return x; })) * each;
    const products_type products = sums.products(measured([mean](float x, float g) {
      return products_type{(x - mean) * (x - mean), g * (x - mean), g};
    }));
    const float scale = rsqrtf(products.at[0] * each + epsilon);
    return {mean, scale, -mean * scale, -products.at[2] * each * scale, -products.at[1] * each * scale * scale};
  } else {
    const products_type products = sums.products(measured([](float x, float g) {
      return products_type{x * x, g * x};
    }));
    const float scale = rsqrtf(products.at[0] * each + epsilon);
    return {0, scale, 0, 0, -products.at[1] * each * scale * scale};
  }
}

/// Rows that the blocks of a grid take in turn, Threads / Lanes rows at once, Stages turns of them under way in shared memory. A thread
/// reads only what it copied itself, always the same columns, so that copies need no barrier and sums over rows stay in registers. Rows
/// begin at multiples of 16 bytes and have at most Lanes * Items chunks of 16 bytes, just as many where they are Whole.
///
/// Dynamic shared memory: 16 bytes for each of (Stages * inputs + 1) * Items * Threads chunks.
template <norm_kind Kind, residual_mode Residual, typename T, int Threads, int Lanes, int Items, int Stages, bool Whole>
class norm_backward_rows {
 public:
  static constexpr int rows_at_once = Threads / Lanes;
  using sums_type = gradient_sums<Kind, Lanes>;

  __device__ __forceinline__ norm_backward_rows(const norm_gradients<T>& tensors, int rows, int cols)
      : tensors_(tensors), rows_(rows), cols_(cols) {
    extern __shared__ uint4 norm_backward_chunks[];
    mine_ = norm_backward_chunks + threadIdx.x;
    lane_ = threadIdx.x % Lanes;
    group_ = threadIdx.x / Lanes;
  }

  /// partial: of this block; dbias follows dweight after `bias_partial` floats, for layer_norm.
  __device__ __forceinline__ void run(float epsilon, float* partial, long long bias_partial,
                                      typename sums_type::scratch& scratch) {
    const int step = gridDim.x * rows_at_once;
    int base = blockIdx.x * rows_at_once;
    prepare();
#pragma unroll 1
    for (int stage = 0; stage < Stages; ++stage) copy_row(stage, base + group_ + stage * step);
    sums_type sums(scratch);
    for (int stage = 0; base < rows_; base += step) {
      cp_async_wait<Stages - 1>();
      take_row(stage, base + group_, epsilon, sums);
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
  __device__ __forceinline__ bool is_inside(int item) const { return Whole || column(item) + n <= cols_; }

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
      if (Whole || first < cols_) continue;
      for (int stage = 0; stage < Stages; ++stage)
        for (int input = 0; input < inputs; ++input) slot(stage, input, item) = uint4{0, 0, 0, 0};
    }
  }

  __device__ __forceinline__ void copy_chunk(uint4& to, const T* row, int first) {
    if (Whole || first + n <= cols_) {
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
    __device__ __forceinline__ auto operator()(Measure measure) {
      decltype(measure(0.0f, 0.0f)) total{};
#pragma unroll
      for (int item = 0; item < Items; ++item) {
        const vec<float, n> x = to_floats<T, n>(rows.slot(stage, of_x, item));
        const vec<float, n> dy = to_floats<T, n>(rows.slot(stage, of_dy, item));
        const vec<float, n> weight = to_floats<T, n>(rows.weight_slot(item));
        // Past its end a row has zeros, of which only deviations from a mean are none.
        const int inside = Kind == norm_kind::rms || rows.is_inside(item) ? n : rows.cols_ - rows.column(item);
        if (inside == n) {
#pragma unroll
          for (int i = 0; i < n; ++i) total = total + measure(x.at[i], dy.at[i] * weight.at[i]);
        } else {
#pragma unroll
          for (int i = 0; i < n; ++i)
            if (i < inside) total = total + measure(x.at[i], dy.at[i] * weight.at[i]);
        }
      }
      return total;
    }
  };

  __device__ __forceinline__ void take_row(int stage, int row, float epsilon, sums_type& sums) {
    staged_row measured{*this, stage};
    const gradient_statistics row_is = gradient_statistics_of<Kind>(measured, sums, cols_, epsilon);
    if (row >= rows_) return;
    T* const target = tensors_.dx + row * tensors_.dx_row_stride;
#pragma unroll
    for (int item = 0; item < Items; ++item) take_chunk(stage, item, row_is, target);
  }

  __device__ __forceinline__ void take_chunk(int stage, int item, const gradient_statistics& row_is, T* target) {
    const vec<float, n> x = to_floats<T, n>(slot(stage, of_x, item));
    const vec<float, n> dy = to_floats<T, n>(slot(stage, of_dy, item));
    const vec<float, n> weight = to_floats<T, n>(weight_slot(item));
    vec<float, n> dx;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float normed = row_is.normed(x.at[i]);
      dx.at[i] = row_is.dx(dy.at[i] * weight.at[i], normed);
      weight_sums_[item].at[i] += dy.at[i] * normed;
      if constexpr (Kind == norm_kind::layer) bias_sums_[item].at[i] += dy.at[i];
    }
    if constexpr (Residual == residual_mode::add) {
      const vec<float, n> d_sum = to_floats<T, n>(slot(stage, of_d_sum, item));
#pragma unroll
      for (int i = 0; i < n; ++i) dx.at[i] += d_sum.at[i];
    }
    const int first = column(item);
    if (is_inside(item)) {
      store_packed<n>(target + first, from_floats<T, n>(dx));
    } else {
      kiln::store_partial<n>(target, first, cols_, from_floats<T, n>(dx));
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
      if (!Whole && column(item) >= cols_) continue;
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
