// attention_decode in double, a row of the result a block.
#pragma once

#include "byte_tile.cuh"
#include "cache.cuh"
#include "common/attention/cache_reference.cuh"
#include "common/view.cuh"

/// grid (queries of all sequences, heads), block (256). out is float. It computes each step-th row, and the lse of all that see no key,
/// since that is not finite.
template <typename Form>
__global__ __launch_bounds__(256) void attention_decode_reference(
    kiln::attention::HeadRows<const typename Form::T> q, kiln::attention::HeadRows<const typename Form::Cache> k,
    kiln::attention::HeadRows<const typename Form::Cache> v, kiln::attention::HeadRows<float> out,
    kiln::attention::LogSums lse, const float* sinks, const int* key_lengths, kiln::view<const int, 1> block_table,
    long long keys, long long queries, long long heads, long long key_heads, int page_size, int pages, float scale,
    float cap, long long window_left, long long step, kiln::attention::HeadScales k_scale,
    kiln::attention::HeadScales v_scale) {
  using namespace kiln::attention;
  __shared__ ReferenceStorage shared;
  const int head = blockIdx.y;
  const int sequence = static_cast<int>(blockIdx.x / queries), row = static_cast<int>(blockIdx.x % queries);
  const Visible<Form::mask> visible(static_cast<int>(queries),
                                    min(max(key_lengths[sequence], 0), static_cast<int>(keys)),
                                    {true, small(window_left), 0});
  const int begin = visible.begin(row), end = visible.end(row);
  const bool is_sampled = (blockIdx.y * static_cast<long long>(gridDim.x) + blockIdx.x) % step == 0;
  if (begin < end && !is_sampled) return;

  const int key_head = static_cast<int>(head / (heads / key_heads));
  const CacheUnits<Form::has_bytes> units(k_scale, v_scale, key_head);
  reference_of_row<Form>(
      q.at + sequence * q.batch_stride + row * q.row_stride + head * q.head_stride,
      {k,
       v,
       {sequence, block_table.address + sequence * block_table.strides[0], page_size, pages},
       key_head,
       units.of_logits(scale, 1.0f),
       units.of_values()},
      begin, end, cap, Form::sinks == Sinks::head ? sinks + head : nullptr, shared,
      is_sampled ? out.at + sequence * out.batch_stride + row * out.row_stride + head * out.head_stride : nullptr,
      lse.at == nullptr ? nullptr : lse.at + sequence * lse.batch_stride + head * lse.head_stride + row);
}
