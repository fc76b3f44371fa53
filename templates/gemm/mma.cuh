// gemm on the tensor cores of sm_80 and later: mma.sync from shared memory, fed by a ring of cp.async stages.
//
// A block computes a tile_m x tile_n tile of y; each of its warps a part of at most 64 x 64, held in registers. Tiles
// of x and w along k pass through `stages` slots of shared memory: stages - 1 are in flight while one is multiplied,
// and the fragments of the next 16 of k are read while the current 16 are multiplied. When the tiles of y are too few
// to fill the device, k is split over gridDim.y: partial sums go to a workspace, and gemm_reduce adds them in a fixed
// order.
//
// Ends of m, n and k are filled with zeros by the copies, which read nothing outside x and w. Copies move 16 bytes, so
// rows of x and w as stored, their strides and addresses are multiples of 16 bytes; rows of y have aligned strides and
// any length. Where x runs along m and its length is held on the device, the last copy may bring in what lies past it,
// which meets only rows of y that are not written.
#pragma once

#include "choices.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"
#include "operand_tile.cuh"

namespace kiln::gemm {

/// Row length of the partial sums, so that every access of 4 of them is aligned.
__device__ __forceinline__ long long partial_stride(long long n) { return (n + 7) / 8 * 8; }

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

struct TileIndex {
  int m, n;
};

/// The order of tiles: bands of `group` rows of tiles, walked column by column, so that tiles that run together share x
/// and w in L2.
__device__ __forceinline__ TileIndex tile_in_bands(int index, int tiles_m, int tiles_n, int group) {
  const int band = index / (group * tiles_n), first = band * group, within = index - first * tiles_n;
  const int height = min(group, tiles_m - first);
  return {first + within % height, within / height};
}

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

/// Eight neighbours of one row of y: bias, activation, rounding, one store (or single ones at the end of a row).
template <typename T, Activation activation>
__device__ __forceinline__ void finish(const float (&sums)[8], const float (&bias)[8], T* y, long long columns_left) {
  unsigned pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = cvt_rn_x2<T>(activate<activation>(sums[2 * i] + bias[2 * i]),
                            activate<activation>(sums[2 * i + 1] + bias[2 * i + 1]));
  if (columns_left >= 8) {
    __stwb(reinterpret_cast<uint4*>(y),
           make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));  // a plain assignment is split into four
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < columns_left) y[i] = T{static_cast<unsigned short>(pairs[i / 2] >> i % 2 * 16)};
    }
  }
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

}  // namespace kiln::gemm

/// grid (tiles of m * tiles of n, splits) for the most rows there may be, block (warps * 32), dynamic shared memory as
/// mma.toml says. x and w lie as `layout` says; `bias` ([n], may be null) and `y` ([m, n]) are used when split is 0,
/// else `partial`, which is [splits, m, round_up(n, 8)]; m is the length that `rows` holds. Strides in elements.
template <typename T, kiln::gemm::Layout layout, kiln::gemm::Activation activation, int tile_m, int tile_n, int tile_k,
          int warps, int stages, bool split>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_mma(const T* x, const T* w, const T* bias, T* y, float* partial, kiln::axis_length rows, long long n,
             long long k, long long x_stride, long long w_stride, long long y_stride, int group, int splits) {
  using namespace kiln::gemm;
  using Tiles = Tiling<layout, tile_m, tile_n, tile_k, warps, stages>;
  extern __shared__ __align__(128) char ring[];
  kiln::wait_for_predecessor();
  kiln::launch_dependents();

  const int m = rows.read();
  const int tiles_m = (m + tile_m - 1) / tile_m, tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  if (static_cast<int>(blockIdx.x) >= tiles_m * tiles_n) return;
  const TileIndex tile = tile_in_bands(static_cast<int>(blockIdx.x), tiles_m, tiles_n, group);
  const long long first_row = static_cast<long long>(tile.m) * tile_m,
                  first_column = static_cast<long long>(tile.n) * tile_n;

  // Whole tiles of k for each split; the last ones may have fewer, or none.
  const int tiles_k = static_cast<int>((k + tile_k - 1) / tile_k), tiles_a_split = (tiles_k + splits - 1) / splits;
  const int first_tile = static_cast<int>(blockIdx.y) * tiles_a_split;
  const int k_tiles = max(0, min(tiles_a_split, tiles_k - first_tile));
  const long long first_k = static_cast<long long>(first_tile) * tile_k;
  const int k_left = static_cast<int>(k - first_k);

  TileCopy<typename Tiles::XTile, Tiles::threads> x_copy(
      x + (Tiles::x_along_k ? first_row * x_stride + first_k : first_k * x_stride + first_row), x_stride, m - first_row,
      k_left);
  TileCopy<typename Tiles::WTile, Tiles::threads> w_copy(
      w + (Tiles::w_along_k ? first_column * w_stride + first_k : first_k * w_stride + first_column), w_stride,
      n - first_column, k_left);
  Accumulators<Tiles> sums = {};
  multiply<T, Tiles>(sums, kiln::shared_address(ring), x_copy, w_copy, k_tiles);

  const long long last_m = rows.read();  // again: a register held through the product is dear
  float* const staging = reinterpret_cast<float*>(ring + threadIdx.x / 32 * Tiles::staging_bytes);
  const long long warp_row = first_row + Tiles::warp_row() * Tiles::warp_m;
  const long long warp_column = first_column + Tiles::warp_column() * Tiles::warp_n;
  if constexpr (split) {
    const long long stride = partial_stride(n);
    float* const to = partial + (blockIdx.y * last_m + warp_row) * stride + warp_column;
    drain<Tiles>(sums, staging, [&](int row, int column, const float(&values)[8]) {
      if (warp_row + row >= last_m || warp_column + column >= n) return;
      float4* const eight = reinterpret_cast<float4*>(to + row * stride + column);
      __stwb(eight, make_float4(values[0], values[1], values[2], values[3]));
      __stwb(eight + 1, make_float4(values[4], values[5], values[6], values[7]));
    });
  } else {
    float bias_values[8] = {};  // a lane has the same columns in every row
    const long long bias_column = warp_column + threadIdx.x % 32 % (Tiles::warp_n / 8) * 8;
    if (bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (bias_column + i < n) bias_values[i] = kiln::to_float(bias[bias_column + i]);
      }
    }
    T* const to = y + warp_row * y_stride + warp_column;
    drain<Tiles>(sums, staging, [&](int row, int column, const float(&values)[8]) {
      if (warp_row + row >= last_m) return;
      finish<T, activation>(values, bias_values, to + row * y_stride + column, n - warp_column - column);
    });
  }
}

/// y = activation(sum over splits of partial + bias): grid (ceil(m * ceil(n / 4) / 128)), block (128), four neighbours
/// a thread. Splits are added in their order, so the result does not depend on which block finished first.
template <typename T, kiln::gemm::Activation activation>
__global__ void __launch_bounds__(128) gemm_reduce(const float* partial, const T* bias, T* y, kiln::axis_length rows,
                                                   long long n, long long y_stride, int splits) {
  using namespace kiln::gemm;
  kiln::wait_for_predecessor();
  const long long m = rows.read();
  const long long stride = partial_stride(n), groups = (n + 3) / 4, index = blockIdx.x * 128ll + threadIdx.x;
  const long long row = index / groups, column = index % groups * 4;
  if (row >= m) return;

  float sums[4] = {};
  const float* from = partial + row * stride + column;
#pragma unroll 4
  for (int split = 0; split < splits; ++split, from += m * stride) {
    const kiln::vec<float, 4> values = kiln::load<4>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += values.at[i];
  }
  kiln::vec<T, 4> results;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float shift = bias != nullptr && column + i < n ? kiln::to_float(bias[column + i]) : 0.0f;
    results.at[i] = kiln::from_float<T>(activate<activation>(sums[i] + shift));
  }
  T* const to = y + row * y_stride + column;
  if (column + 4 <= n) {
    kiln::store(to, results);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < n) to[i] = results.at[i];
    }
  }
}
