// attention_forward on the tensor cores of sm_90a by wgmma, without a mask. Two blocks of a cluster have neighbouring
// tiles of queries. Each brings half of the columns of keys and values to both. L2 is asked for half as much.
#pragma once

#include "common/attention/forward_wgmma.cuh"

/// As attention_wgmma, of dense sequences; by clusters of two blocks.
template <typename Form, int tile_m, int tile_n, int stages, bool pingpong, int lazy, bool trims = false>
__global__ void __launch_bounds__(
    kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, lazy>::threads, 1)
    attention_wgmma_pair(const __grid_constant__ kiln::tensor_map q_map, const __grid_constant__ kiln::tensor_map k_map,
                         const __grid_constant__ kiln::tensor_map v_map,
                         kiln::attention::HeadRows<typename Form::T> out, kiln::attention::LogSums lse, int batch,
                         int queries, int keys, int heads, int key_heads,
                         const __grid_constant__ kiln::attention::ForwardTerms<typename Form::T> terms) {
  static_assert(Form::layout == kiln::attention::Layout::dense && Form::mask == kiln::attention::Mask::none);
  using Tiles = kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, lazy, false, false, false, 2,
                                             1, trims>;
  kiln::attention::attention_block<Tiles>({&q_map, &k_map, &v_map}, out, lse, nullptr, nullptr, nullptr, nullptr,
                                          queries, nullptr, {batch, queries, keys, heads, key_heads},
                                          in_registers(terms), heads / key_heads, 0);
}
