// A tile of a product y = x W^T of few rows, where reading W from memory takes longer than everything else.
//
// W is the left operand of mma.sync, 16 rows at a time. x is the right one, 8 rows at a time, so that few rows of x
// waste little. Warps of a block, and blocks of a cluster, take the lines of k in turn. Their sums are added in the
// order of warps, then of blocks, whichever ended first: every run gives the same result.
//
// The arithmetic, for 4.3 TB/s on the 132 multiprocessors of an H200 at 1.755 GHz: each takes 18.6 bytes of W a clock.
// That leaves 110 issue slots for the 512 bytes that one access of a warp moves. These bytes take a copy and its
// address, an ldmatrix, rows_of_x / 8 products, and their share of what x takes. That is 10 in all for 16 rows of x and
// 64 of W, and 22 where bytes are converted. Memory answers in 1 to 1.2 us when it is busy. So some 40 KB are to be on
// their way to each multiprocessor, and more where not all have work.
//
// There is no form for one row without tensor cores. In f32 it would convert and add up eight elements a lane, 16
// instructions, where this takes one product. The lanes of a row would still have to be added up.
#pragma once

#include "common/gemm/epilogue.cuh"
#include "common/gemm/stream_products.cuh"
#include "common/gemm/stream_sums.cuh"

namespace kiln::gemm {

/// One product. x and w both run along k; their rows, strides and addresses are multiples of 16 bytes. Rows of x up to `m` may
/// be read, whatever they hold: each meets its own row of y alone.
template <typename X, typename W>
struct StreamOperands {
  const X* x;
  const W* w;
  long long x_stride, w_stride;  // elements
  int m;
  long long n, k;
  const float *x_scale, *w_scale;  // of blocks of k
  long long x_scale_stride, w_scale_stride, x_scale_k_stride, w_scale_k_stride;
};

/// `column` is the first of the warp's.
template <class Config, class Share, typename X, typename W>
__device__ __forceinline__ auto scales_of_k(const StreamOperands<X, W>& of, int row, long long column, int part,
                                            int lines) {
  if constexpr (Config::scaling == Scaling::block) {
    static_assert(sizeof(W) == 1 && scaling_block == line_bytes && scaling_block % Share::warp_rows == 0);
    const long long of_w = min(column, of.n - 1) / scaling_block * of.w_scale_stride;
    return BlockScales<Share>(of.x_scale + row * of.x_scale_stride, of.w_scale + of_w, of.m - row, of.x_scale_stride,
                              of.x_scale_k_stride, of.w_scale_k_stride, part, lines);
  } else {
    return NoScales{};
  }
}

/// A tile's rows of W are columns of y: a lane has two neighbours of two rows.
template <class Share, class Epilogue>
__device__ __forceinline__ void store_sums(const Epilogue& epilogue, int row, long long column, int tile,
                                           const Sums& sums) {
  const int lane = threadIdx.x % 32;
  row += tile % Share::x_groups * 8 + lane % 4 * 2;
  column += tile / Share::x_groups * 16 + lane / 4 * 2;
  const auto terms = epilogue.template terms<2>(column);
  epilogue.template store<2>(row, column, terms, {sums.at[0], sums.at[2]});
  epilogue.template store<2>(row + 1, column, terms, {sums.at[1], sums.at[3]});
}

/// From what the warps of a cluster have left in their rings to y. By all threads of its blocks, of which this is number `rank`.
template <class Share, class Epilogue>
__device__ __forceinline__ void store_tile(const Epilogue& epilogue, int row, long long column, const char* rings,
                                           Exchange<Share>& exchange, int rank) {
  const int warp = threadIdx.x / 32;
  __syncthreads();
  if constexpr (Share::blocks == 1) {
    for (int tile = warp; tile < Share::tiles; tile += Share::warps)
      store_sums<Share>(epilogue, row, column, tile, sum_of_warps<Share>(rings, tile));
  } else {
    cluster_wait();
    for (int tile = warp; tile < Share::tiles; tile += Share::warps)
      exchange.send(rank, tile, sum_of_warps<Share>(rings, tile));
    mbarrier_wait(&exchange.barrier);
    for (int i = warp; i < Exchange<Share>::owned(rank); i += Share::warps)
      store_sums<Share>(epilogue, row, column, i * Share::blocks + rank, exchange.sum_of_blocks(i));
  }
}

/// Rows of x from `row` on, Share::rows_of_x of them, times Share::block_rows rows of W from `column` on. The blocks of a cluster
/// of Share::blocks are called with the same. make_epilogue() is called once copies are on their way. The block's dynamic
/// shared memory is its rings, and an Exchange where there are several blocks.
template <class Config, class Share, typename X, typename W, typename MakeEpilogue>
__device__ __forceinline__ void stream_tile(const StreamOperands<X, W>& of, int row, long long column,
                                            MakeEpilogue make_epilogue) {
  char* const rings = dynamic_shared();
  auto& exchange = *reinterpret_cast<Exchange<Share>*>(rings + Share::warps * Share::ring_bytes);
  int rank = 0;
  if constexpr (Share::blocks > 1) {
    rank = static_cast<int>(cluster_block_rank());
    exchange.open(rank);
  }

  const int warp = threadIdx.x / 32, part = rank * Share::warps_k + warp % Share::warps_k;
  const long long warp_column = column + warp / Share::warps_k * Share::warp_rows;
  char* const ring = rings + warp * Share::ring_bytes;
  const int bytes_of_k = static_cast<int>(of.k * sizeof(W)), lines = (bytes_of_k + line_bytes - 1) / line_bytes;
  const int lines_of_part = (lines + Share::parts_of_k - 1) / Share::parts_of_k;  // the last may be zeros
  LaneCopy<X, W, Share> from(of.x + row * of.x_stride, of.w + warp_column * of.w_stride, of.m - row, of.n - warp_column,
                             of.x_stride, of.w_stride, bytes_of_k, part);
  fill_ring(from, shared_address(ring), lines_of_part);
  const auto epilogue = make_epilogue();
  auto scales = scales_of_k<Config, Share>(of, row, warp_column, part, lines);
  Sums sums[Share::warp_tiles] = {};
  multiply_lines(sums, from, scales, shared_address(ring), lines_of_part);
#pragma unroll
  for (int i = 0; i < Share::warp_tiles; ++i)
    store(reinterpret_cast<float*>(ring + i * Share::tile_bytes) + threadIdx.x % 32 * 4, sums[i]);
  store_tile(epilogue, row, column, rings, exchange, rank);
}

}  // namespace kiln::gemm
