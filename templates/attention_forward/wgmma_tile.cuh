// What a block of attention_wgmma is compiled for, and its shared memory: a tile of queries, stages of keys and of values, and the
// barriers by which the warpgroup that copies and those that multiply take turns at them.
#pragma once

#include "common/attention/problem.cuh"
#include "common/attention/swizzled_tile.cuh"
#include "common/attention/tile_search.cuh"

namespace kiln::attention {

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

}  // namespace kiln::attention
