// attention_paged on the tensor cores of sm_90a by wgmma.
//
// As common/attention/forward_wgmma.cuh, but keys and values come from pages of a pool. A block of keys is copied by boxes
// that lie in one page each. A lane of a warp looks up the page of a box, and starts its copy: those of a warp start one by
// one, so that keys and values have a warp each. Boxes have all columns that fill them: 2 KB take nearly as long as 4.
#pragma once

#include "common/attention/cache_rows.cuh"
#include "common/attention/forward_wgmma.cuh"
#include "common/view.cuh"
#include "terms.cuh"

namespace kiln::attention {

/// The maps of k and v show them as [pages and heads, eights of keys, boxes of columns, eight keys, columns of a box]. Where tiles have no groups,
/// there is one box of all columns.
struct PagedMaps {
  const tensor_map *q, *k, *v;
  view<const int, 1> block_table;
  int page_size, pages, box_keys;  // keys of a box of the maps
  int key_heads, value_heads;      // from a page to the next, along the maps' first dimension
};

/// Copies blocks of keys and values from pages, by a warp. Pages without a key that the tile may see are left out, so that what was there before
/// stays: their keys are masked, and the warps that multiply clear their values.
template <typename Tiles>
class PagedRows {
 public:
  using From = PagedMaps;
  static constexpr bool by_warp = true;
  static constexpr int registers = Tiles::consumers == 3 ? 32 : 40;

  __device__ __forceinline__ explicit PagedRows(const From& from) : from_(from) {}

  /// `first_seen`: the tile's first query sees keys from there on.
  template <typename Tile>
  __device__ __forceinline__ void copy(const Place& to, unsigned parity, const tensor_map* map, const Work& work,
                                       int block, int first_seen, int head) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane * from_.box_keys, key = block * Tiles::tile_n + row;
    const bool copies = row < Tiles::tile_n && key < work.of.keys && key + from_.box_keys > first_seen;
    const CacheRows<CacheLayout::paged> rows = {
        work.of.first_key, from_.block_table.address + work.of.first_key * from_.block_table.strides[0],
        from_.page_size, from_.pages};
    const CacheRow at = copies ? rows.at(key) : CacheRow{};
    const int boxes = __popc(__ballot_sync(full_warp, copies));
    if (lane == 0) begun(to, parity, boxes * Tile::boxes * from_.box_keys * Tile::swizzle);
    __syncwarp();
    const int heads = map == from_.k ? from_.key_heads : from_.value_heads;
    if (copies) Tile::load_page(to.data, map, to.full, row, at.row, at.outer * heads + head);
  }

 private:
  From from_;
};

}  // namespace kiln::attention

/// grid: blocks that run at once; block and dynamic shared memory as wgmma.toml says. The map of q is as
/// attention_wgmma's; those of k and v are as PagedMaps says. `section`: heads whose keys and values L2 holds.
/// `counters`: two words, zero before and after.
template <typename Form, int tile_m, int tile_n, int stages, bool pingpong, bool holds_queries, bool late,
          int heads_of_tile, bool trims>
__global__ void __launch_bounds__(kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, 2, false,
                                                               holds_queries, late, 1, heads_of_tile, trims>::threads,
                                  1)
    attention_paged_wgmma(const __grid_constant__ kiln::tensor_map q_map,
                          const __grid_constant__ kiln::tensor_map k_map,
                          const __grid_constant__ kiln::tensor_map v_map,
                          kiln::attention::HeadRows<typename Form::T> out, kiln::attention::LogSums lse,
                          const int* query_offsets, const int* key_lengths, kiln::view<const int, 1> block_table,
                          unsigned long long* query_report, unsigned long long* key_report, int longest,
                          unsigned* counters, int batch, int queries, int keys, int heads, int key_heads, int page_size,
                          int pages, int box_keys, int heads_of_k, int heads_of_v, float scale, float cap,
                          long long window_left, const float* sinks, int section) {
  using namespace kiln::attention;
  using Tiles =
      WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, 2, false, holds_queries, late, 1, heads_of_tile, trims>;
  attention_block<Tiles, PagedRows<Tiles>>(
      {&q_map, &k_map, &v_map, block_table, page_size, pages, box_keys, heads_of_k, heads_of_v}, out, lse,
      query_offsets, key_lengths, query_report, key_report, longest, counters, {batch, queries, keys, heads, key_heads},
      paged_terms<typename Form::T>(scale, cap, window_left, sinks), section, 1);
}
