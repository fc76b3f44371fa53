// One operand's tile in shared memory: how it lies there, how it is copied in, how a warp reads fragments from it.
//
// `outer` is the tile's extent along m or n, tile_k along k. Memory order is kept: rows of the tile are rows of the
// matrix as it is stored. So a row holds tile_k elements where k runs along memory. Elsewhere it holds `outer`
// elements, and ldmatrix transposes. Rows are cut into chunks of 16 bytes, which are permuted by the row's index. So
// the eight rows that ldmatrix reads at once lie in different banks, as do the eight chunks that a copy writes at once.
#pragma once

#include "common/async_copy.cuh"
#include "common/mma.cuh"

namespace kiln::gemm {

inline constexpr int chunk_elements = 8;  // of 16 bits

template <int outer, int tile_k, bool along_k>
struct OperandTile {
  static_assert((outer & (outer - 1)) == 0 && (tile_k & (tile_k - 1)) == 0 && outer >= 16 && tile_k >= 32);
  static constexpr bool runs_along_k = along_k;
  static constexpr int k_extent = tile_k;
  static constexpr int rows = along_k ? outer : tile_k;
  static constexpr int chunks = (along_k ? tile_k : outer) / chunk_elements;  // of a row
  static constexpr int row_bytes = chunks * 16;
  static constexpr int bytes = rows * row_bytes;

  /// Byte offset of a chunk in the tile.
  static __device__ __forceinline__ unsigned offset(unsigned row, unsigned chunk) {
    const unsigned permutation = chunks >= 8 ? row & 7 : chunks == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
    return row * row_bytes + (chunk ^ permutation) * 16;
  }

  /// The offset that this lane gives to ldmatrix for the 16 x 16 fragment at k = 0, outer = `first`.
  /// `a_order`: matrices in the order of mma's a (outer varies first), else of two b side by side.
  /// REQUIRES: `first` is a multiple of the warp's extent, a power of two.
  static __device__ __forceinline__ unsigned lane_offset(unsigned first, unsigned lane, bool a_order) {
    const unsigned low = lane >> 3 & 1, high = lane >> 4;  // of the four matrices
    const unsigned outer_half = a_order ? low : high, k_half = a_order ? high : low;
    return along_k ? offset(first + outer_half * 8 + (lane & 7), k_half)
                   : offset(k_half * 8 + (lane & 7), first / chunk_elements + outer_half);
  }

  /// Fragment `index` along the outer dimension (16 each), step `k_step` along k (16 each). Moving by whole fragments
  /// never carries into the permuted bits, so one exclusive or and one addition move the lane's offset.
  static __device__ __forceinline__ void load_fragment(unsigned (&fragment)[4], unsigned tile, unsigned lane_offset,
                                                       int index, int k_step) {
    if constexpr (along_k) {
      ldmatrix_x4(fragment, tile + (lane_offset ^ (k_step * 32)) + index * 16 * row_bytes);
    } else {
      ldmatrix_x4_trans(fragment, tile + (lane_offset ^ (index * 32)) + k_step * 16 * row_bytes);
    }
  }
};

/// What one thread copies of the tiles of one operand, walking along k. Rows of the matrix are whole chunks.
template <typename Tile, int threads>
class TileCopy {
 public:
  /// `origin` is the first element of the first tile; `outer_left` and `k_left` are what the matrix has from there.
  template <typename T>
  __device__ __forceinline__ TileCopy(const T* origin, long long stride, long long outer_left, int k_left) {
    static_assert(sizeof(T) == 2);
    const int row = threadIdx.x / Tile::chunks, column = threadIdx.x % Tile::chunks * chunk_elements;
    const int outer_bound = static_cast<int>(min(outer_left, 1ll << 20));  // past any tile
    source_ = reinterpret_cast<const char*>(origin + row * stride + column);
    pass_bytes_ = rows_a_pass * stride * 2;
    tile_bytes_ = (Tile::runs_along_k ? 1 : stride) * Tile::k_extent * 2;
    rows_left_ = (Tile::runs_along_k ? outer_bound : k_left) - row;
    columns_left_ = (Tile::runs_along_k ? k_left : outer_bound) - column;
  }

  /// Starts this thread's copies of the current tile to shared memory.
  __device__ __forceinline__ void copy(unsigned tile) const {
    const int rows = columns_left_ > 0 ? rows_left_ : 0;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const unsigned row = threadIdx.x / Tile::chunks + pass * rows_a_pass;
      if (Tile::rows % rows_a_pass != 0 && row >= Tile::rows) continue;
      cp_async_16(tile + Tile::offset(row, threadIdx.x % Tile::chunks), source_ + pass * pass_bytes_,
                  pass * rows_a_pass < rows);
    }
  }

  __device__ __forceinline__ void advance() {
    source_ += tile_bytes_;
    (Tile::runs_along_k ? columns_left_ : rows_left_) -= Tile::k_extent;
  }

 private:
  static_assert(threads % Tile::chunks == 0);
  static constexpr int rows_a_pass = threads / Tile::chunks;
  static constexpr int passes = (Tile::rows + rows_a_pass - 1) / rows_a_pass;

  const char* source_;
  long long pass_bytes_, tile_bytes_;
  int rows_left_, columns_left_;
};

}  // namespace kiln::gemm
