// What a block of attention_wgmma is compiled for, and its shared memory: a tile of queries, stages of keys and of values, and the
// barriers by which the warpgroup that copies and those that multiply take turns at them.
#pragma once

#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "problem.cuh"

namespace kiln::attention {

inline constexpr int warpgroup = 128, warpgroup_rows = 64;

/// `rows` tokens of one head, as TMA lays them down: boxes of 64 columns under the 128-byte swizzle, or of 32 under the 64-byte one
/// where 64 does not divide `dim`. Boxes lie one after another.
template <int dim, int rows>
struct SwizzledTile {
  static constexpr int box_columns = dim % 64 == 0 ? 64 : 32, swizzle = box_columns * 2, boxes = dim / box_columns;
  static constexpr int box_bytes = rows * swizzle, bytes = boxes * box_bytes;
  static_assert(dim % 32 == 0 && rows % 16 == 0);

  /// Starts the copies of the rows from `row` on, whose bytes are reported to `barrier`.
  static __device__ __forceinline__ void load(unsigned to, const tensor_map* map, unsigned barrier, int head, int row,
                                              int plane) {
#pragma unroll
    for (int box = 0; box < boxes; ++box)
      tma_load_4d(to + box * box_bytes, map, barrier, box * box_columns, head, row, plane);
  }

  /// As an operand whose k are the columns; at(row, step): bytes to 16 columns of the rows from a multiple of 8 on.
  static __device__ __forceinline__ unsigned long long along_columns(unsigned tile) {
    return wgmma_descriptor(tile, 8 * swizzle, 16, swizzle);
  }
  static __device__ constexpr int at(int row, int step) {
    return step * 32 / swizzle * box_bytes + step * 32 % swizzle + row * swizzle;
  }
  /// As an operand whose k are the rows; 16 of them are 16 * swizzle bytes.
  static __device__ __forceinline__ unsigned long long along_rows(unsigned tile) {
    return wgmma_descriptor(tile, 8 * swizzle, box_bytes, swizzle);
  }
};

/// tile_m queries, 64 for each of the warpgroups that multiply, by tile_n keys.
template <typename Form_, int tile_m_, int tile_n_, int stages_, bool overlap_, bool pingpong_, bool lazy_>
struct WgmmaTiling {
  using Form = Form_;
  using T = typename Form::T;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, stages = stages_;
  /// The next product of queries and keys goes on during this softmax.
  static constexpr bool overlap = overlap_;
  /// Warpgroups take turns at the tensor cores.
  static constexpr bool pingpong = pingpong_;
  /// Sums are multiplied only where a row's largest score has grown much (SoftmaxRows::absorb).
  static constexpr bool lazy = lazy_;
  static constexpr int consumers = tile_m / warpgroup_rows, threads = warpgroup * (1 + consumers);
  static_assert(tile_m % warpgroup_rows == 0 && consumers >= 1 && consumers <= 3 && tile_n % 16 == 0);
  static_assert(!pingpong || consumers > 1);

  using Query = SwizzledTile<Form::head_dim, tile_m>;
  using Key = SwizzledTile<Form::head_dim, tile_n>;
  using Value = SwizzledTile<Form::value_dim, tile_n>;
};

/// What a block does next: the queries of a sequence from `row` on, of one head. As two words of 16 bytes.
struct alignas(16) Work {
  Sequence of;
  int head, row;
  int exists;  // 0: there is no more
};
static_assert(sizeof(Work) == 32);

/// A place that is written and read in turns: `full` completes a phase when it is written, `empty` when it is read.
struct Place {
  unsigned data, full, empty;  // shared addresses
};

/// Where the block stands in a ring of places.
template <int places>
struct RingPosition {
  int slot = 0;
  unsigned parity = 0;  // of the slot's current use

  __device__ __forceinline__ void advance() {
    if (++slot == places) {
      slot = 0;
      parity ^= 1;
    }
  }
};

template <typename Tiles>
struct SharedLayout {
  static constexpr int works = 2;
  static constexpr int key = Tiles::Query::bytes, value = key + Tiles::stages * Tiles::Key::bytes,
                       work = value + Tiles::stages * Tiles::Value::bytes,
                       barriers = work + works * static_cast<int>(sizeof(Work)),
                       bytes = barriers + 16 * (1 + 2 * Tiles::stages + works);
  unsigned base;  // a multiple of 1024

  __device__ __forceinline__ Place query() const { return place(0, 0); }
  __device__ __forceinline__ Place keys(int slot) const { return place(key + slot * Tiles::Key::bytes, 1 + slot); }
  __device__ __forceinline__ Place values(int slot) const {
    return place(value + slot * Tiles::Value::bytes, 1 + Tiles::stages + slot);
  }
  __device__ __forceinline__ Place works_at(int slot) const {
    return place(work + slot * static_cast<int>(sizeof(Work)), 1 + 2 * Tiles::stages + slot);
  }

  /// For one thread. One thread fills a place; every warp that multiplies empties it.
  __device__ __forceinline__ void make_barriers() const {
#pragma unroll
    for (int i = 0; i < 1 + 2 * Tiles::stages + works; ++i) {
      mbarrier_init(base + barriers + 16 * i, 1);
      mbarrier_init(base + barriers + 16 * i + 8, Tiles::consumers * warpgroup / 32);
    }
    fence_mbarrier_init();
  }

 private:
  __device__ __forceinline__ Place place(int offset, int barrier) const {
    return {base + offset, base + barriers + 16 * barrier, base + barriers + 16 * barrier + 8};
  }
};

/// Says that this warp has read a place.
__device__ __forceinline__ void release(const Place& place) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(place.empty);
}

}  // namespace kiln::attention
