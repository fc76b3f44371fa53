// What a block of attention_backward_keys_wgmma is compiled for, and its shared memory.
#pragma once

#include "common/attention/swizzled_tile.cuh"
#include "query_tiles.cuh"

namespace kiln::attention {

/// Columns of each of the parts of a row, which begin with boxes.
template <int dim, int parts>
inline constexpr int part_columns = (dim + 16 * parts - 1) / (16 * parts) * 16;

/// A tile whose columns are read by parts; past `dim` they are zeros.
template <int dim, int rows, int parts>
using PartedTile = SwizzledTile<parts == 1 ? dim : parts * part_columns<dim, parts>, rows,
                                box_columns_of<parts == 1 ? padded_columns<dim> : part_columns<dim, parts>>>;

/// Whether the sums of dk and dv leave a warpgroup few registers.
template <typename Form, bool split>
inline constexpr bool sums_crowd = !split && Form::head_dim + Form::value_dim > 256;
template <typename Tiles>
inline constexpr bool is_crowded = sums_crowd<typename Tiles::Form, Tiles::split>;

/// tile_n keys by tile_m queries. Each warpgroup that multiplies has 64 of the keys, and holds their weights in
/// registers. Or (`split`) two share 64 keys, by weights in shared memory. Each has half of the queries and then half
/// of the columns of dk and dv. Where dk and dv have so many columns that their sums leave few registers (is_crowded),
/// weights are in shared memory too, and gradients have one stage.
template <typename Form_, int tile_m_, int tile_n_, int stages_, bool split_, bool sums_dq_>
struct BackwardWgmma {
  using Form = Form_;
  using T = typename Form::T;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, stages = stages_;
  static constexpr bool split = split_, sums_dq = sums_dq_;  // else another kernel computes dq
  static constexpr int consumers = split ? 2 : tile_n / warpgroup_rows, threads = warpgroup * (1 + consumers);
  static constexpr int parts = split ? 2 : 1, own_queries = tile_m / parts,
                       own_head = split ? part_columns<Form::head_dim, 2> : Form::head_dim,
                       own_value = split ? part_columns<Form::value_dim, 2> : Form::value_dim;
  // A warpgroup has 64 queries of dq, and some of the columns where there are no more queries.
  static constexpr int query_blocks = tile_m / warpgroup_rows, dq_parts = consumers / query_blocks,
                       dq_columns = part_columns<Form::head_dim, dq_parts>;
  static_assert(tile_m % warpgroup_rows == 0 && tile_n % warpgroup_rows == 0 && (!split || tile_n == warpgroup_rows));
  static_assert(query_blocks == 1 || query_blocks == consumers);
  static_assert(!sums_crowd<Form, split> || (tile_m == warpgroup_rows && stages == 2));

  using Key = PartedTile<Form::head_dim, tile_n, dq_parts>;
  using Value = SwizzledTile<Form::value_dim, tile_n>;
  using Query = PartedTile<Form::head_dim, tile_m, parts>;
  using Gradient = PartedTile<Form::value_dim, tile_m, parts>;  // of out
  using Weights = SwizzledTile<tile_m, tile_n>;                 // or their gradients: a row a key
  static constexpr int shared_weights = sums_crowd<Form, split> ? 2 : (split ? 2 : 0) + (split || sums_dq ? 2 : 0);
};

template <typename Tiles>
struct BackwardLayout {
  static constexpr int value = Tiles::Key::bytes, stage = value + Tiles::Value::bytes,
                       stage_bytes = Tiles::Query::bytes + (is_crowded<Tiles> ? 0 : Tiles::Gradient::bytes),
                       changes = stage + Tiles::stages * stage_bytes + (is_crowded<Tiles> ? Tiles::Gradient::bytes : 0),
                       weights = changes + (is_crowded<Tiles> ? 1 : 2) * Tiles::Weights::bytes,
                       sum = changes + Tiles::shared_weights * Tiles::Weights::bytes,
                       sum_bytes = Tiles::sums_dq ? Tiles::tile_m * Tiles::Form::head_dim * 4 : 0,
                       facts = sum + sum_bytes, facts_bytes = Tiles::tile_m * static_cast<int>(sizeof(RowFacts)),
                       barriers = facts + Tiles::stages * facts_bytes, places = 1 + 2 * Tiles::stages + Tiles::sums_dq,
                       bytes = barriers + 16 * places;
  unsigned base;  // a multiple of 1024

  /// Filled once, and never emptied.
  __device__ __forceinline__ Place keys() const { return place(0, 0); }
  __device__ __forceinline__ Place queries(int slot) const { return place(stage + slot * stage_bytes, 1 + slot); }
  __device__ __forceinline__ Place gradients(int slot) const {
    if constexpr (is_crowded<Tiles>) return place(stage + Tiles::stages * stage_bytes, 1 + Tiles::stages);
    return place(stage + slot * stage_bytes + Tiles::Query::bytes, 1 + Tiles::stages + slot);
  }
  /// Facts of a slot's queries from `first` on.
  __device__ __forceinline__ FactsApart facts_of(const char* memory, int slot, int first) const {
    const auto* const lse2s = reinterpret_cast<const float*>(memory + facts + slot * facts_bytes) + first;
    return {lse2s, lse2s + Tiles::tile_m};
  }
  /// What a tile adds to dq: rows of floats under swizzle_sums.
  __device__ __forceinline__ Place sums() const { return place(sum, 1 + 2 * Tiles::stages); }

  /// For one thread. Queries come with their facts, which a warp copies. Every warp that multiplies empties each place but that of sums,
  /// which it fills.
  __device__ __forceinline__ void make_barriers() const {
#pragma unroll
    for (int i = 0; i < places; ++i) {
      constexpr int warps = Tiles::consumers * warpgroup / 32;
      const bool of_sums = i == 1 + 2 * Tiles::stages;
      mbarrier_init(base + barriers + 16 * i, of_sums ? warps : i >= 1 && i <= Tiles::stages ? 2 : 1);
      mbarrier_init(base + barriers + 16 * i + 8, of_sums ? 1 : warps);
    }
    fence_mbarrier_init();
  }

 private:
  __device__ __forceinline__ Place place(int offset, int barrier) const {
    return {base + offset, base + barriers + 16 * barrier, base + barriers + 16 * barrier + 8};
  }
};

}  // namespace kiln::attention
