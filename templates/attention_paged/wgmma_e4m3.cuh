// attention_paged on the tensor cores of sm_90a by wgmma, over keys and values in e4m3.
//
// As wgmma.cuh, but a warpgroup of each block widens keys and values to q's type, as forward_wgmma_widen.cuh says. Their
// heads' scales are of the logits and of the results, so that no element is rounded.
#pragma once

#include "wgmma.cuh"

namespace kiln::attention {

template <typename Form, int tile_m, int tile_n, int stages, int staged, bool pingpong, bool holds_queries, bool late,
          int heads_of_tile, bool trims>
using PagedBytesTiling = WideningTiling<
    WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, 2, false, holds_queries, late, 1, heads_of_tile, trims>,
    staged>;

}  // namespace kiln::attention

/// grid: blocks that run at once; block and dynamic shared memory as wgmma_e4m3.toml says. The maps and counters are as
/// attention_paged_wgmma's, but those of k and v have no swizzle. `staged`: tiles of bytes, of keys and of values. k_scale and v_scale: of each key head.
template <typename Form, int tile_m, int tile_n, int stages, int staged, bool pingpong, bool holds_queries, bool late,
          int heads_of_tile, bool trims>
__global__ void __launch_bounds__(kiln::attention::PagedBytesTiling<Form, tile_m, tile_n, stages, staged, pingpong,
                                                                    holds_queries, late, heads_of_tile, trims>::threads,
                                  1)
    attention_paged_wgmma_e4m3(const __grid_constant__ kiln::tensor_map q_map,
                               const __grid_constant__ kiln::tensor_map k_map,
                               const __grid_constant__ kiln::tensor_map v_map,
                               kiln::attention::HeadRows<typename Form::T> out, kiln::attention::LogSums lse,
                               const int* query_offsets, const int* key_lengths, kiln::view<const int, 1> block_table,
                               unsigned long long* query_report, unsigned long long* key_report, int longest,
                               unsigned* counters, int batch, int queries, int keys, int heads, int key_heads,
                               int page_size, int pages, int box_keys, int heads_of_k, int heads_of_v, float scale,
                               float cap, long long window_left, const float* sinks, int section,
                               kiln::attention::HeadScales k_scale, kiln::attention::HeadScales v_scale) {
  using namespace kiln::attention;
  using Tiles =
      PagedBytesTiling<Form, tile_m, tile_n, stages, staged, pingpong, holds_queries, late, heads_of_tile, trims>;
  attention_block<Tiles, PagedRows<Tiles>>(
      {&q_map, &k_map, &v_map, block_table, page_size, pages, box_keys, heads_of_k, heads_of_v}, out, lse,
      query_offsets, key_lengths, query_report, key_report, longest, counters, {batch, queries, keys, heads, key_heads},
      paged_terms<typename Form::T>(scale, cap, window_left, sinks), section, 1, k_scale, v_scale);
}
