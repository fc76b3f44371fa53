// What a block of attention_wgmma is compiled for, and its shared memory: a tile of queries, stages of keys and of
// values, and barriers. By these the warps that copy, those that transpose or widen and those that multiply take turns.
#pragma once

#include "common/attention/grouped_tile.cuh"
#include "common/attention/problem.cuh"
#include "common/attention/softmax_rows.cuh"
#include "common/attention/swizzled_tile.cuh"
#include "common/attention/tile_search.cuh"

namespace kiln::attention {

/// Keys or values: where they come from pages, in groups, if their columns fill the boxes.
template <Layout layout, typename Tile, int dim, int rows, bool in_groups = dim % Tile::box_columns == 0>
struct KeyTile {
  using type = Tile;
};
template <typename Tile, int dim, int rows>
struct KeyTile<Layout::paged, Tile, dim, rows, true> {
  using type = GroupedTile<dim, rows, Tile::box_columns>;
};

/// tile_m rows, 64 for each of the warpgroups that multiply, by tile_n keys. A row is a query of a head.
template <typename Form_, int tile_m_, int tile_n_, int stages_, bool overlap_, bool pingpong_, int lazy_,
          bool promoted_ = false, bool holds_queries_ = false, bool late_ = false, int blocks_ = 1, int heads_ = 1,
          bool trims_ = false>
struct WgmmaTiling {
  using Form = Form_;
  using T = typename Form::T;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, stages = stages_;
  /// The next product of queries and keys goes on during this softmax.
  static constexpr bool overlap = overlap_;
  /// Warpgroups take turns at the tensor cores.
  static constexpr bool pingpong = pingpong_;
  /// When rows' origins move, and sums are multiplied.
  static constexpr Lazy lazy = static_cast<Lazy>(lazy_);
  static_assert(lazy_ >= 0 && lazy_ <= 2);
  /// A tile's weighted values are summed afresh, and then added in f32.
  static constexpr bool promoted = promoted_;
  /// Queries are in registers while their tile lasts, and so are read from shared memory but once.
  static constexpr bool holds_queries = holds_queries_;
  /// A product with values is waited for amid the next exponentials, which leaves some to do while weights are rounded and sums
  /// multiplied. Else where ptxas finds best, which is before them where nothing is masked.
  static constexpr bool late = late_;
  static constexpr int amid = !late ? 0 : sizeof(T) == 1 ? 16 : 4;  // exponentials of a row before it
  /// Results are stored by store_rows. Other forms, of which there are records, keep the machine code that was timed.
  static constexpr bool stores_rows = lazy == Lazy::by_row;
  /// Blocks of a cluster, which take neighbouring tiles of one key head. Each brings a part of its keys and values to
  /// all of them.
  static constexpr int blocks = blocks_;
  /// Heads of one key head in a tile: row i is query i / heads of head i % heads. Fewer queries see fewer keys together.
  /// Where `heads` does not divide tile_m, the last rows are zeros, which no query has.
  static constexpr int heads = heads_, queries = tile_m / heads, rows = queries * heads;
  static_assert(heads == 1 ||
                (heads <= 8 && blocks == 1 && sizeof(T) == 2 && !Form::has_terms && Form::dropout == Dropout::none));
  /// A warpgroup without queries, in the last tile of a sequence, multiplies nothing.
  static constexpr bool trims = trims_;
  static_assert(!trims || sizeof(T) == 2);
  /// wgmma takes 8-bit operands along k alone: three warps beside the one that copies transpose values.
  static constexpr bool transposes = sizeof(T) == 1;
  static constexpr int transposing_warps = transposes ? 3 : 0;
  /// Copies from pages are many: a warp brings queries and keys, another values.
  static constexpr int value_warps = Form::layout == Layout::paged ? 1 : 0;
  /// Weights are 2^raised times what they would be: as large as e4m3 takes, so that few are too small for it.
  static constexpr int raised = transposes ? 8 : 0;
  static constexpr int step = 32 / static_cast<int>(sizeof(T));  // columns or keys that a wgmma multiplies
  static constexpr int consumers = tile_m / warpgroup_rows, threads = warpgroup * (1 + consumers);
  static_assert(tile_m % warpgroup_rows == 0 && consumers >= 1 && consumers <= 3 && tile_n % step == 0);
  static_assert(!pingpong || consumers > 1);

  template <int dim, int rows>
  using Tile = SwizzledTile<dim, rows, box_columns_of<padded_columns<dim>, T>, static_cast<int>(sizeof(T))>;
  using Query = Tile<Form::head_dim, tile_m>;
  using Key = typename KeyTile<Form::layout, Tile<Form::head_dim, tile_n>, Form::head_dim, tile_n>::type;
  using Value = typename KeyTile<Form::layout, Tile<Form::value_dim, tile_n>, Form::value_dim, tile_n>::type;
  using Transposed =
      SwizzledTile<(tile_n + 127) / 128 * 128, padded_columns<Form::value_dim>, 128, 1>;  // a row a column of values

  /// What TMA brings: the tiles that are multiplied, where nothing widens them.
  using CopiedKey = Key;
  using CopiedValue = Value;
  static constexpr int copied_stages = stages, widening_warps = 0;
  static constexpr bool halves_values = false;  // a product with values is one instruction
};

/// As Tiles, but TMA brings keys and values of 8 bits, to `staged` tiles of each, and a warpgroup widens them to T.
template <typename Tiles, int staged>
struct WideningTiling : Tiles {
  static constexpr int threads = Tiles::threads + warpgroup;
  using CopiedKey = typename Tiles::Key::OfBytes;
  using CopiedValue = typename Tiles::Value::OfBytes;
  static constexpr int copied_stages = staged, widening_warps = warpgroup / 32;
  /// A product with many values is two instructions: ptxas refuses one that needs more registers than a thread begins with.
  static constexpr bool halves_values = Tiles::consumers > 1 && Tiles::Form::value_dim > 192;
  static_assert(!halves_values || Tiles::Form::value_dim % (2 * Tiles::Value::box_columns) == 0);
  static_assert(Tiles::blocks == 1 && !Tiles::transposes);
};

template <typename Tiles>
struct SharedLayout {
  static constexpr int works = 2, transposed_stages = Tiles::transposes ? Tiles::stages : 0,
                       staged = Tiles::widening_warps > 0 ? Tiles::copied_stages : 0;
  static constexpr int key = Tiles::Query::bytes, value = key + Tiles::stages * Tiles::Key::bytes,
                       transposed = value + Tiles::stages * Tiles::Value::bytes,
                       staged_key = transposed + transposed_stages * Tiles::Transposed::bytes,
                       staged_value = staged_key + staged * Tiles::CopiedKey::bytes,
                       work = staged_value + staged * Tiles::CopiedValue::bytes,
                       barriers = work + works * static_cast<int>(sizeof(Work)),
                       places = 1 + 2 * Tiles::stages + works + transposed_stages + 2 * staged,
                       bytes = barriers + 16 * places;
  unsigned base;  // a multiple of 1024

  __device__ __forceinline__ Place query() const { return place(0, 0); }
  __device__ __forceinline__ Place keys(int slot) const { return place(key + slot * Tiles::Key::bytes, 1 + slot); }
  __device__ __forceinline__ Place values(int slot) const {
    return place(value + slot * Tiles::Value::bytes, first_value + slot);
  }
  __device__ __forceinline__ Place works_at(int slot) const {
    return place(work + slot * static_cast<int>(sizeof(Work)), first_work + slot);
  }
  /// What weights are multiplied with: values, or these transposed.
  __device__ __forceinline__ Place weighted(int slot) const {
    if constexpr (!Tiles::transposes) return values(slot);
    return place(transposed + slot * Tiles::Transposed::bytes, first_transposed + slot);
  }

  /// Where TMA lays keys and values down: places of theirs, or of bytes that are widened to these.
  __device__ __forceinline__ Place copied_keys(int slot) const {
    if constexpr (staged == 0) return keys(slot);
    return place(staged_key + slot * Tiles::CopiedKey::bytes, first_staged + slot);
  }
  __device__ __forceinline__ Place copied_values(int slot) const {
    if constexpr (staged == 0) return values(slot);
    return place(staged_value + slot * Tiles::CopiedValue::bytes, first_staged + staged + slot);
  }

  /// For one thread. One thread fills a place, or each warp that transposes or widens. Every warp that takes from it empties it.
  __device__ __forceinline__ void make_barriers() const {
    constexpr int multiplying = Tiles::consumers * warpgroup / 32, transposing = Tiles::transposing_warps,
                  widening = Tiles::widening_warps;
#pragma unroll
    for (int i = 0; i < places; ++i) {
      const bool is_operand = i >= 1 && i < first_work, is_value = is_operand && i >= first_value;
      const bool is_transposed = i >= first_transposed && i < first_staged, is_staged = i >= first_staged;
      const bool is_work = i >= first_work && i < first_transposed, is_widened = is_operand && widening != 0;
      mbarrier_init(base + barriers + 16 * i, is_widened ? widening : is_transposed ? transposing : 1);
      mbarrier_init(base + barriers + 16 * i + 8, is_work ? multiplying + transposing + widening + Tiles::value_warps
                                                  : is_staged                     ? widening
                                                  : is_value && Tiles::transposes ? transposing
                                                  : is_operand                    ? multiplying * Tiles::blocks
                                                                                  : multiplying);
    }
    fence_mbarrier_init();
  }

 private:
  static constexpr int first_value = 1 + Tiles::stages, first_work = first_value + Tiles::stages,
                       first_transposed = first_work + works,
                       first_staged = first_transposed + transposed_stages;  // among places
  __device__ __forceinline__ Place place(int offset, int barrier) const {
    return {base + offset, base + barriers + 16 * barrier, base + barriers + 16 * barrier + 8};
  }
};

}  // namespace kiln::attention
