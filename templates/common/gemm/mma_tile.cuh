// A tile of a product on the tensor cores of sm_80 and later: mma.sync from shared memory, fed by a ring of cp.async stages.
//
// A block computes a tile_m x tile_n tile; each of its warps a part of at most 64 x 64, held in registers. Tiles of x
// and w along k pass through `stages` slots of shared memory. stages - 1 of them are in flight while one is multiplied.
// The fragments of the next 16 of k are read while the current 16 are multiplied.
//
// Ends of m, n and k are filled with zeros by the copies, which read nothing outside x and w. Copies move 16 bytes, so
// rows of x and w as stored, their strides and addresses are multiples of 16 bytes. Where x runs along m and its length
// is held on the device, the last copy may bring in what lies past it. That meets only rows of y that are not written.
#pragma once

#include "common/gemm/choices.cuh"
#include "common/gemm/operand_tile.cuh"
#include "common/gemm/tile_order.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace kiln::gemm {

template <Layout layout, int tile_m, int tile_n, int tile_k, int warps, int stages>
struct Tiling {
  static constexpr int threads = warps * 32;
  static constexpr int warps_m = tile_m > 64 ? tile_m / 64 : 1, warps_n = warps / warps_m;
  static constexpr int warp_m = tile_m / warps_m, warp_n = tile_n / warps_n;
  static constexpr int m_steps = warp_m / 16, n_steps = warp_n / 16, k_steps = tile_k / 16;  // fragments
  static_assert(warps % warps_m == 0 && warp_n % 16 == 0 && warp_n <= 64 && stages >= 2);

  static constexpr bool x_along_k = x_runs_along_k<layout>, w_along_k = w_runs_along_k<layout>;
  using XTile = OperandTile<tile_m, tile_k, x_along_k>;
  using WTile = OperandTile<tile_n, tile_k, w_along_k>;
  static constexpr int stage_bytes = XTile::bytes + WTile::bytes;
  static constexpr int ring_stages = stages, ring_bytes = stages * stage_bytes;

  /// The epilogue passes 16 rows of a warp at a time through shared memory, padded against bank conflicts.
  static constexpr int staging_stride = warp_n + 8;              // floats
  static constexpr int staging_bytes = 16 * staging_stride * 4;  // of a warp
  static_assert(staging_bytes * warps <= ring_bytes);

  static __device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / 32 / warps_n; }
  static __device__ __forceinline__ int warp_column() { return static_cast<int>(threadIdx.x) / 32 % warps_n; }
};

/// Accumulators of a warp: m_steps x n_steps fragments of 16 x 16, each as two of 16 x 8.
template <typename Tiles>
using Accumulators = float[Tiles::m_steps][Tiles::n_steps * 2][4];

/// The product of the tiles of x and w from where the copies stand. All threads of the block take part.
template <typename T, typename Tiles, typename XCopy, typename WCopy>
__device__ __forceinline__ void multiply(Accumulators<Tiles>& sums, unsigned shared, XCopy& x_copy, WCopy& w_copy,
                                         int k_tiles) {
  using XTile = typename Tiles::XTile;
  using WTile = typename Tiles::WTile;
  constexpr int k_steps = Tiles::k_steps;
  const unsigned lane = threadIdx.x % 32;
  const unsigned x_lane = XTile::lane_offset(Tiles::warp_row() * Tiles::warp_m, lane, true);
  const unsigned w_lane = WTile::lane_offset(Tiles::warp_column() * Tiles::warp_n, lane, false);
  const unsigned ring_end = shared + Tiles::ring_bytes;
  unsigned x_fragments[2][Tiles::m_steps][4], w_fragments[2][Tiles::n_steps][4];

  const auto load_fragments = [&](int buffer, unsigned stage, int k_step) {
#pragma unroll
    for (int i = 0; i < Tiles::m_steps; ++i) XTile::load_fragment(x_fragments[buffer][i], stage, x_lane, i, k_step);
#pragma unroll
    for (int j = 0; j < Tiles::n_steps; ++j)
      WTile::load_fragment(w_fragments[buffer][j], stage + XTile::bytes, w_lane, j, k_step);
  };
  const auto multiply_fragments = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < Tiles::m_steps; ++i) {
#pragma unroll
      for (int step = 0; step < Tiles::n_steps * 2; ++step) {
        const int j =
            i % 2 == 0 ? step : Tiles::n_steps * 2 - 1 - step;  // there and back, so that operands are used again
        mma_m16n8k16<T>(sums[i][j], x_fragments[buffer][i], w_fragments[buffer][j / 2][j % 2 * 2],
                        w_fragments[buffer][j / 2][j % 2 * 2 + 1]);
      }
    }
  };
  unsigned write = shared;
  int to_copy = k_tiles;
  // Closes a group even past the last tile, when it is empty: so counting groups counts tiles.
  const auto copy_tile = [&] {
    if (to_copy > 0) {
      x_copy.copy(write);
      w_copy.copy(write + XTile::bytes);
    }
    cp_async_commit();
    x_copy.advance();
    w_copy.advance();
    write = write + Tiles::stage_bytes == ring_end ? shared : write + Tiles::stage_bytes;
    --to_copy;
  };

#pragma unroll 1
  for (int stage = 0; stage < Tiles::ring_stages - 1; ++stage) copy_tile();
  cp_async_wait<Tiles::ring_stages - 2>();
  __syncthreads();
  unsigned read = shared;
  load_fragments(0, read, 0);

#pragma unroll 1
  for (int tile = 0; tile < k_tiles; ++tile) {
#pragma unroll
    for (int k_step = 0; k_step < k_steps; ++k_step) {
      load_fragments((k_step + 1) % 2, read, (k_step + 1) % k_steps);
      if (k_step == 0) copy_tile();
      if (k_step == k_steps - 2) {
        // All fragments of this tile are read, so its slot may be written; and the next tile has landed for all
        // threads. One step early, so that products remain to hide the reads that follow.
        cp_async_wait<Tiles::ring_stages - 2>();
        __syncthreads();
        read = read + Tiles::stage_bytes == ring_end ? shared : read + Tiles::stage_bytes;
      }
      multiply_fragments(k_step % 2);
    }
  }
  cp_async_wait<0>();
  __syncthreads();
}

/// Hands each 8 neighbours of the warp's part of the tile to `sink(row, column, values)`, rows and columns counted from
/// the part's corner. Rows pass through shared memory, 16 at a time, so that neighbours meet in one thread and one
/// access.
template <typename Tiles, typename Sink>
__device__ __forceinline__ void drain(const Accumulators<Tiles>& sums, float* staging, Sink sink) {
  constexpr int chunks = Tiles::warp_n / 8, rows_a_pass = 32 / chunks;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Tiles::m_steps; ++i) {
#pragma unroll
    for (int j = 0; j < Tiles::n_steps * 2; ++j) {
      float* const at = staging + lane / 4 * Tiles::staging_stride + j * 8 + lane % 4 * 2;
      store(at, vec<float, 2>{sums[i][j][0], sums[i][j][1]});
      store(at + 8 * Tiles::staging_stride, vec<float, 2>{sums[i][j][2], sums[i][j][3]});
    }
    __syncwarp();
#pragma unroll 1
    for (int row = lane / chunks; row < 16; row += rows_a_pass) {
      const float* const from = staging + row * Tiles::staging_stride + lane % chunks * 8;
      const vec<float, 4> low = load<4>(from), high = load<4>(from + 4);
      const float values[8] = {low.at[0],  low.at[1],  low.at[2],  low.at[3],
                               high.at[0], high.at[1], high.at[2], high.at[3]};
      sink(i * 16 + row, lane % chunks * 8, values);
    }
    __syncwarp();
  }
}

/// One product's operands as they lie: x and w of m rows, n columns and k, strides in elements.
template <typename T>
struct Operands {
  const T *x, *w;
  long long x_stride, w_stride;
  int m;
  long long n;
};

/// The part of the tile at (first_row, first_column) from first_k to the end of its k_tiles tiles of k. At first_k,
/// `k_left` of k are left.
template <typename T, typename Tiles>
__device__ __forceinline__ void multiply_tile(Accumulators<Tiles>& sums, const char* ring, const Operands<T>& of,
                                              long long first_row, long long first_column, long long first_k,
                                              int k_left, int k_tiles) {
  TileCopy<typename Tiles::XTile, Tiles::threads> x_copy(
      of.x + (Tiles::x_along_k ? first_row * of.x_stride + first_k : first_k * of.x_stride + first_row), of.x_stride,
      of.m - first_row, k_left);
  TileCopy<typename Tiles::WTile, Tiles::threads> w_copy(
      of.w + (Tiles::w_along_k ? first_column * of.w_stride + first_k : first_k * of.w_stride + first_column),
      of.w_stride, of.n - first_column, k_left);
  multiply<T, Tiles>(sums, shared_address(ring), x_copy, w_copy, k_tiles);
}

/// Where the warp's part of the tile stands whose corner is at 0, 0.
template <typename Tiles>
__device__ __forceinline__ int part_row() {
  return Tiles::warp_row() * Tiles::warp_m;
}
template <typename Tiles>
__device__ __forceinline__ int part_column() {
  return Tiles::warp_column() * Tiles::warp_n;
}
template <typename Tiles>
__device__ __forceinline__ float* staging_of_warp(char* ring) {
  return reinterpret_cast<float*>(ring + threadIdx.x / 32 * Tiles::staging_bytes);
}

/// The finished tile to y, by an epilogue.
template <typename Tiles, typename Epilogue>
__device__ __forceinline__ void store_tile(const Accumulators<Tiles>& sums, char* ring, const Epilogue& epilogue,
                                           long long first_row, long long first_column) {
  const int row_of_part = static_cast<int>(first_row) + part_row<Tiles>();
  const long long column_of_part = first_column + part_column<Tiles>();
  const int own_column = static_cast<int>(threadIdx.x) % 32 % (Tiles::warp_n / 8) * 8;  // the same in every row
  const auto terms = epilogue.template terms<8>(column_of_part + own_column);
  drain<Tiles>(sums, staging_of_warp<Tiles>(ring), [&](int row, int column, const float(&values)[8]) {
    epilogue.template store<8>(row_of_part + row, column_of_part + column, terms, values);
  });
}

}  // namespace kiln::gemm
