// A tile of a product in f32 arithmetic on the ordinary cores: any size, stride, address, layout, type and choice.
//
// 256 threads compute a tile_m x tile_n tile; thread (r, c) of 16 x 16 holds tile_m / 16 rows by tile_n / 16 columns of
// it. Tiles of 16 along k pass through shared memory as floats, k outermost, so that a thread's rows and columns are
// neighbours. The next tile is on its way to registers while one is multiplied. Scales of blocks of k are multiplied in
// between, in f32.
#pragma once

#include "common/gemm/epilogue.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace kiln::gemm {

inline constexpr int simt_threads = 256, simt_tile_k = 16;

/// Where the scales of an operand are, one for each `outer_a_scale` of m or n and 128 of k; 0: there are none.
template <int outer_a_scale>
struct BlockScales {
  const float* values;
  long long stride, k_stride;

  __device__ __forceinline__ float at(long long outer, int k) const {
    if constexpr (outer_a_scale == 0) return 1.0f;
    return values[outer / max(outer_a_scale, 1) * stride + k / scaling_block * k_stride];
  }
};

/// One operand's tile, `outer` along m or n, on its way from global memory through registers to shared memory.
template <typename T, int outer, int vector, bool along_k, int outer_a_scale>
class SimtOperand {
 public:
  using Scales = BlockScales<outer_a_scale>;
  static constexpr int stride = outer + 4;  // floats between one k and the next; the padding spreads banks

  /// The tiles from (first_outer, 0) on of a matrix of `outer_extent` by k.
  __device__ __forceinline__ SimtOperand(const T* values, long long leading, const Scales& scales,
                                         long long first_outer, long long outer_extent, int k)
      : from_(values + first_outer * (along_k ? leading : 1) + row() * leading + column()),
        pass_(rows_a_pass * leading),
        tile_((along_k ? 1 : leading) * simt_tile_k),
        scales_(scales),
        outer_(first_outer + (along_k ? row() : column())) {
    const int outer_left = static_cast<int>(min(outer_extent - first_outer, 1ll << 20));  // past any tile
    rows_left_ = (along_k ? outer_left : k) - row();
    columns_left_ = (along_k ? k : outer_left) - column();
  }

  /// Reads this thread's elements of the current tile, zeros past the ends, and moves on to the next tile.
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const T* const from = from_ + pass * pass_;
      const bool inside = pass * rows_a_pass < rows_left_ && columns_left_ > 0 && row() + pass * rows_a_pass < rows;
      fetched_[pass] = inside ? load<vector>(from) : vec<T, vector>{};
#pragma unroll
      for (int i = 0; i < scales_a_group; ++i)
        factors_[pass][i] = inside ? scales_.at(outer_ + (along_k ? pass * rows_a_pass : i), first_k_) : 0.0f;
    }
    from_ += tile_;
    first_k_ += simt_tile_k;
    (along_k ? columns_left_ : rows_left_) -= simt_tile_k;
  }

  __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const int r = row() + pass * rows_a_pass;
      if (rows % rows_a_pass != 0 && r >= rows) continue;
#pragma unroll
      for (int i = 0; i < vector; ++i) {
        const float value = to_float(fetched_[pass].at[i]);
        tile[along_k ? (column() + i) * stride + r : r * stride + column() + i] =
            outer_a_scale == 0 ? value : value * factors_[pass][i % scales_a_group];
      }
    }
  }

 private:
  // The tile as it lies in memory, in groups of `vector` elements, each within one block of k and of 128 columns.
  static constexpr int rows = along_k ? outer : simt_tile_k, groups_a_row = (along_k ? simt_tile_k : outer) / vector;
  static constexpr int rows_a_pass = simt_threads / groups_a_row, passes = (rows + rows_a_pass - 1) / rows_a_pass;
  static constexpr int scales_a_group = along_k || outer_a_scale != 1 ? 1 : vector;

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / groups_a_row; }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % groups_a_row * vector; }

  const T* from_;
  long long pass_, tile_;
  Scales scales_;
  long long outer_;  // that this thread's first elements are of
  int rows_left_, columns_left_, first_k_ = 0;
  vec<T, vector> fetched_[passes];
  float factors_[passes][scales_a_group];
};

/// Where a thread's `extent / 16` rows (or columns) of a tile are: runs of up to 4 neighbours, so that each run is one
/// access.
template <int extent>
struct ThreadShare {
  static constexpr int count = extent / 16, run = count < 4 ? count : 4;
  static __device__ __forceinline__ int index(int thread, int i) { return i / run * 16 * run + thread * run + i % run; }

  static __device__ __forceinline__ void read(float (&values)[count], const float* row, int thread) {
#pragma unroll
    for (int i = 0; i < count; i += run) {
      const vec<float, run> loaded = load<run>(row + index(thread, i));
#pragma unroll
      for (int j = 0; j < run; ++j) values[i + j] = loaded.at[j];
    }
  }
};

/// One product's operands as they lie, with the distances between the scales of their blocks; strides in elements.
template <typename X, typename W>
struct SimtProduct {
  const X* x;
  const W* w;
  const float *x_scale, *w_scale;
  long long x_stride, w_stride;
  long long x_scale_stride, w_scale_stride, x_scale_k_stride, w_scale_k_stride;
  int m;
  long long n, k;
};

/// The tile at (first_row, first_column), from the operands to y. All 256 threads of the block take part.
template <typename X, typename W, Layout layout, typename Config, int tile_m, int tile_n, int vector>
__device__ __forceinline__ void simt_tile(const SimtProduct<X, W>& of, const epilogue<Config>& ending,
                                          long long first_row, long long first_column) {
  constexpr bool blocks = Config::scaling == Scaling::block;
  using XOperand = SimtOperand<X, tile_m, vector, x_runs_along_k<layout>, blocks ? 1 : 0>;
  using WOperand = SimtOperand<W, tile_n, vector, w_runs_along_k<layout>, blocks ? scaling_block : 0>;
  using Rows = ThreadShare<tile_m>;
  using Columns = ThreadShare<tile_n>;
  __shared__ __align__(16) float x_tile[2][simt_tile_k * XOperand::stride], w_tile[2][simt_tile_k * WOperand::stride];

  const int thread_row = threadIdx.x / 16, thread_column = threadIdx.x % 16, k = static_cast<int>(of.k);
  XOperand x_operand(of.x, of.x_stride, {of.x_scale, of.x_scale_stride, of.x_scale_k_stride}, first_row, of.m, k);
  WOperand w_operand(of.w, of.w_stride, {of.w_scale, of.w_scale_stride, of.w_scale_k_stride}, first_column, of.n, k);
  float sums[Rows::count][Columns::count] = {};

  x_operand.fetch();
  w_operand.fetch();
  int slot = 0;
#pragma unroll 1
  for (int k_left = k; k_left > 0; k_left -= simt_tile_k, slot ^= 1) {
    x_operand.put(x_tile[slot]);
    w_operand.put(w_tile[slot]);
    __syncthreads();  // one a tile: the other slot was last read before the previous one
    if (k_left > simt_tile_k) {
      x_operand.fetch();
      w_operand.fetch();
    }
#pragma unroll 4
    for (int i = 0; i < simt_tile_k; ++i) {
      float x_values[Rows::count], w_values[Columns::count];
      Rows::read(x_values, x_tile[slot] + i * XOperand::stride, thread_row);
      Columns::read(w_values, w_tile[slot] + i * WOperand::stride, thread_column);
#pragma unroll
      for (int r = 0; r < Rows::count; ++r) {
#pragma unroll
        for (int c = 0; c < Columns::count; ++c) sums[r][c] = fmaf(x_values[r], w_values[c], sums[r][c]);
      }
    }
  }

#pragma unroll
  for (int c = 0; c < Columns::count; c += Columns::run) {
    const long long column = first_column + Columns::index(thread_column, c);
    const auto terms = ending.template terms<Columns::run>(column);
#pragma unroll
    for (int r = 0; r < Rows::count; ++r) {
      float run[Columns::run];
#pragma unroll
      for (int i = 0; i < Columns::run; ++i) run[i] = sums[r][c + i];
      ending.template store<Columns::run>(static_cast<int>(first_row) + Rows::index(thread_row, r), column, terms, run);
    }
  }
}

}  // namespace kiln::gemm
