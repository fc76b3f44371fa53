// Rows of two matrices on their way, line by line, from memory through shared memory to the warp that multiplies them.
//
// Each warp copies what it multiplies by cp.async of whole lines, through a ring of its own. Warps share nothing, so no
// barrier of the block delays them. The depth of the ring, which hides memory's latency, takes no registers.
#pragma once

#include "common/async_copy.cuh"
#include "common/vector.cuh"

namespace kiln::gemm {

/// What a warp takes of each row in one step: a line of L2, in chunks of 16 bytes. A warp's access moves four of them.
inline constexpr int line_bytes = 128, chunk_bytes = 16, line_chunks = line_bytes / chunk_bytes;
inline constexpr int access_lines = 4, access_bytes = access_lines * line_bytes;

/// How a cluster of blocks_ blocks shares out rows of W and lines of k. A block has warps_n_ warps along the rows,
/// warp_rows_ each, and warps_k_ along k.
template <int rows_of_x_, int warp_rows_, int warps_n_, int warps_k_, int stages_, int blocks_>
struct Share {
  static constexpr int warps_n = warps_n_, warps_k = warps_k_, stages = stages_, blocks = blocks_;
  static constexpr int rows_of_x = rows_of_x_, warp_rows = warp_rows_;
  static constexpr int warps = warps_n * warps_k, block_rows = warps_n * warp_rows, parts_of_k = warps_k * blocks;
  static constexpr int x_groups = rows_of_x / 8, w_fragments = warp_rows / 16;

  /// A stage of a warp's ring: a line of each of its rows of W, then of each row of x.
  static constexpr int x_offset = warp_rows * line_bytes, stage_bytes = x_offset + rows_of_x * line_bytes;
  static constexpr int ring_bytes = stages * stage_bytes;

  /// A tile is the product of 16 rows of W and 8 of x: four sums a lane.
  static constexpr int warp_tiles = w_fragments * x_groups, tiles = warps_n * warp_tiles, tile_bytes = 16 * 8 * 4;
  static_assert(rows_of_x % 8 == 0 && warp_rows % 16 == 0);
  static_assert(warp_tiles * tile_bytes <= ring_bytes, "sums pass through the rings' memory");
};

using Sums = vec<float, 4>;  // a lane's, of a tile

/// Where a chunk of a line lies in a stage. Chunks are permuted. The eight chunks of a line that are written at once
/// share no bank. Nor do those of eight lines that ldmatrix reads at once.
__device__ __forceinline__ unsigned chunk_offset(unsigned line, unsigned chunk) {
  return line * line_bytes + (chunk ^ line % line_chunks) * chunk_bytes;
}

/// What one lane copies of its warp's lines: the same chunk of every fourth.
template <typename X, typename W, class Share>
class LaneCopy {
 public:
  /// From line `part` on. `w` is the first of the warp's rows, of which the matrix has `rows_of_w`, none if that is below 1.
  __device__ __forceinline__ LaneCopy(const X* x, const W* w, int rows_of_x, long long rows_of_w, long long x_stride,
                                      long long w_stride, int bytes_of_k, int part)
      : x_stride_(x_stride * sizeof(X)), w_stride_(w_stride * sizeof(W)) {
    const int lane = threadIdx.x % 32, line = lane / line_chunks;
    const int first = part * line_bytes + lane % line_chunks * chunk_bytes;
    to_ = chunk_offset(line, lane % line_chunks);
    x_ = reinterpret_cast<const char*>(x) + line * x_stride_ + first;
    w_ = reinterpret_cast<const char*>(w) + 2 * line * w_stride_ + first;
    x_rows_left_ = rows_of_x - line;
    w_rows_left_ = static_cast<int>(min(rows_of_w, 1ll * Share::warp_rows)) - 2 * line;
    k_left_ = bytes_of_k - first;
  }

  /// Starts the copies of a line to a stage and goes to the warp's next line. Past the last row and the end of k it
  /// writes zeros.
  ///
  /// In each 16 rows of W the even ones come first. They become rows 0 to 7 of mma's result, and the odd ones rows 8 to
  /// 15. So a lane's sums are neighbours in y.
  __device__ __forceinline__ void copy(unsigned stage) {
    const bool some = k_left_ > 0;
#pragma unroll
    for (int i = 0; i < Share::warp_rows / access_lines; ++i) {
      const int row = i / 4 * 16 + i % 2 * 8 + i % 4 / 2;
      cp_async_16(place(stage, i), w_ + row * w_stride_, some && row < w_rows_left_);
    }
#pragma unroll
    for (int i = 0; i < Share::rows_of_x / access_lines; ++i) {
      const int row = i * access_lines;
      cp_async_ca_16(place(stage + Share::x_offset, i), x_ + row * x_stride_, some && row < x_rows_left_);
    }
    w_ += Share::parts_of_k * line_bytes;
    x_ += Share::parts_of_k * line_bytes;
    k_left_ -= Share::parts_of_k * line_bytes;
  }

 private:
  /// The place of the i-th four lines. The upper four of eight are permuted by 4 more.
  __device__ __forceinline__ unsigned place(unsigned stage, int i) const {
    return stage + i * access_bytes + (to_ ^ (i % 2 * 4 * chunk_bytes));
  }

  const char *x_, *w_;
  long long x_stride_, w_stride_;  // bytes
  int x_rows_left_, w_rows_left_;  // from the lane's first on
  int k_left_;                     // bytes, from the lane's next chunk on
  unsigned to_;
};

/// Starts the copies of as many of a warp's `lines` lines as its ring holds. Each closes a group, even one past the last line,
/// which is empty: so counting groups counts lines.
template <typename X, typename W, class Share>
__device__ __forceinline__ void fill_ring(LaneCopy<X, W, Share>& from, unsigned ring, int lines) {
#pragma unroll 1
  for (int line = 0; line < Share::stages; ++line) {
    if (line < lines) from.copy(ring + line * Share::stage_bytes);
    cp_async_commit();
  }
}

}  // namespace kiln::gemm
