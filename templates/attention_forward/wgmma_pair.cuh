// attention_forward on the tensor cores of sm_90a by wgmma, without a mask: two blocks of a cluster have neighbouring tiles of queries, and each
// brings half of the columns of keys and values to both. L2 is asked for half as much.
#pragma once

#include "common/attention/forward_wgmma.cuh"

/// As attention_wgmma, of dense sequences; by clusters of two blocks.
template <typename Form, int tile_m, int tile_n, int stages, bool pingpong, bool lazy>
__global__ void __launch_bounds__(
    kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, lazy>::threads, 1)
    attention_wgmma_pair(const __grid_constant__ kiln::tensor_map q_map, const __grid_constant__ kiln::tensor_map k_map,
                         const __grid_constant__ kiln::tensor_map v_map, typename Form::T* out, float* lse,
                         const float* sinks, int batch, int queries, int keys, int heads, int key_heads,
                         long long out_batch_stride, long long out_row_stride, long long out_head_stride,
                         long long lse_batch_stride, long long lse_head_stride, float scale, float cap, int from_end,
                         const float* slopes, const typename Form::T* bias, long long bias_batch_stride,
                         long long bias_head_stride, long long bias_row_stride, const long long* dropout_seed,
                         float dropout_p) {
  static_assert(Form::layout == kiln::attention::Layout::dense && Form::mask == kiln::attention::Mask::none);
  using Tiles =
      kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, lazy, false, false, false, 2>;
  kiln::attention::attention_block<Tiles>({&q_map, &k_map, &v_map}, out, lse, sinks, nullptr, nullptr, nullptr, nullptr,
                                          queries, nullptr, batch, queries, keys, heads, key_heads, out_batch_stride,
                                          out_row_stride, out_head_stride, lse_batch_stride, lse_head_stride, scale,
                                          cap, from_end, 0, 0, heads / key_heads, 0, slopes, bias, bias_batch_stride,
                                          bias_head_stride, bias_row_stride, dropout_seed, dropout_p);
}
