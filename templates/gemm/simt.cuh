// gemm in f32 arithmetic on the ordinary cores: any size, stride, address, layout and type.
//
// 256 threads compute a tile_m x tile_n tile of y; thread (r, c) of 16 x 16 holds tile_m / 16 rows by tile_n / 16
// columns of it. Tiles of 16 along k pass through shared memory as floats, k outermost, so that a thread's rows and
// columns are neighbours; the next tile is on its way to registers while one is multiplied.
#pragma once

#include "choices.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace kiln::gemm {

inline constexpr int simt_threads = 256, simt_tile_k = 16;

/// One operand's tile, `outer` along m or n, on its way from global memory through registers to shared memory.
template <typename T, int outer, int vector, bool along_k>
class SimtOperand {
 public:
  static constexpr int stride = outer + 4;  // floats between one k and the next; the padding spreads banks

  /// `origin` is the first element of the first tile; `outer_left` and `k_left` are what the matrix has from there.
  __device__ __forceinline__ SimtOperand(const T* origin, long long leading, long long outer_left, int k_left)
      : from_(origin + row() * leading + column()),
        pass_(rows_a_pass * leading),
        tile_((along_k ? 1 : leading) * simt_tile_k) {
    const int outer_bound = static_cast<int>(min(outer_left, 1ll << 20));  // past any tile
    rows_left_ = (along_k ? outer_bound : k_left) - row();
    columns_left_ = (along_k ? k_left : outer_bound) - column();
  }

  /// Reads this thread's elements of the current tile, zeros past the ends, and moves on to the next tile.
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const T* const from = from_ + pass * pass_;
      const bool inside = pass * rows_a_pass < rows_left_ && columns_left_ > 0 && row() + pass * rows_a_pass < rows;
      fetched_[pass] = inside ? load<vector>(from) : vec<T, vector>{};
    }
    from_ += tile_;
    (along_k ? columns_left_ : rows_left_) -= simt_tile_k;
  }

  __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const int r = row() + pass * rows_a_pass;
      if (rows % rows_a_pass != 0 && r >= rows) continue;
#pragma unroll
      for (int i = 0; i < vector; ++i)
        tile[along_k ? (column() + i) * stride + r : r * stride + column() + i] = to_float(fetched_[pass].at[i]);
    }
  }

 private:
  // The tile as it lies in memory, in groups of `vector` elements.
  static constexpr int rows = along_k ? outer : simt_tile_k, groups_a_row = (along_k ? simt_tile_k : outer) / vector;
  static constexpr int rows_a_pass = simt_threads / groups_a_row, passes = (rows + rows_a_pass - 1) / rows_a_pass;

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / groups_a_row; }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % groups_a_row * vector; }

  const T* from_;
  long long pass_, tile_;
  int rows_left_, columns_left_;
  vec<T, vector> fetched_[passes];
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

}  // namespace kiln::gemm

/// grid (tiles of m * tiles of n), block (256). x and w lie as `layout` says; `bias` ([n]) may be null.
/// Strides in elements; `vector` divides those of x and w, their rows' lengths and, in elements, their addresses.
template <typename T, kiln::gemm::Layout layout, kiln::gemm::Activation activation, int tile_m, int tile_n, int vector>
__global__ void __launch_bounds__(256, 2)
    gemm_simt(const T* x, const T* w, const T* bias, T* y, kiln::axis_length rows, long long n, long long k,
              long long x_stride, long long w_stride, long long y_stride) {
  using namespace kiln::gemm;
  constexpr bool x_along_k = x_runs_along_k<layout>, w_along_k = w_runs_along_k<layout>;
  using XOperand = SimtOperand<T, tile_m, vector, x_along_k>;
  using WOperand = SimtOperand<T, tile_n, vector, w_along_k>;
  using Rows = ThreadShare<tile_m>;
  using Columns = ThreadShare<tile_n>;
  __shared__ __align__(16) float x_tile[2][simt_tile_k * XOperand::stride], w_tile[2][simt_tile_k * WOperand::stride];

  kiln::wait_for_predecessor();
  kiln::launch_dependents();
  const long long m = rows.read(), tiles_n = (n + tile_n - 1) / tile_n;
  const long long first_row = blockIdx.x / tiles_n * tile_m, first_column = blockIdx.x % tiles_n * tile_n;
  if (first_row >= m) return;
  const int thread_row = threadIdx.x / 16, thread_column = threadIdx.x % 16;
  XOperand x_operand(x + first_row * (x_along_k ? x_stride : 1), x_stride, m - first_row, static_cast<int>(k));
  WOperand w_operand(w + first_column * (w_along_k ? w_stride : 1), w_stride, n - first_column, static_cast<int>(k));
  float sums[Rows::count][Columns::count] = {};

  x_operand.fetch();
  w_operand.fetch();
  int slot = 0;
#pragma unroll 1
  for (int k_left = static_cast<int>(k); k_left > 0; k_left -= simt_tile_k, slot ^= 1) {
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
  for (int c = 0; c < Columns::count; ++c) {
    const long long column = first_column + Columns::index(thread_column, c);
    if (column >= n) continue;
    const float shift = bias != nullptr ? kiln::to_float(bias[column]) : 0.0f;
#pragma unroll
    for (int r = 0; r < Rows::count; ++r) {
      const long long row = first_row + Rows::index(thread_row, r);
      if (row < m) y[row * y_stride + column] = kiln::from_float<T>(activate<activation>(sums[r][c] + shift));
    }
  }
}
