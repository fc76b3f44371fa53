// attention_paged in double, a row of the result a block.
#pragma once

#include "common/attention/cache_reference.cuh"
#include "common/attention/reference_terms.cuh"
#include "common/view.cuh"

namespace kiln::attention {

/// What reference_of_row takes of a form.
template <typename Of, typename Cache_>
struct PagedReference {
  using T = typename Of::T;
  using Cache = Cache_;
  static constexpr int head_dim = Of::head_dim, value_dim = Of::value_dim;
  static constexpr CacheLayout layout = CacheLayout::paged;
  static constexpr SoftCap soft_cap = Of::soft_cap;
  static constexpr Sinks sinks = Of::sinks;
};

}  // namespace kiln::attention

/// grid (rows of q, heads), block (256). out is float. It computes each step-th row, and the lse of all that see no key, since that is not
/// finite. k_scale and v_scale: of e4m3 alone.
template <typename Form, typename Cache>
__global__ __launch_bounds__(256) void attention_paged_reference(
    kiln::attention::HeadRows<const typename Form::T> q, kiln::attention::HeadRows<const Cache> k,
    kiln::attention::HeadRows<const Cache> v, kiln::attention::HeadRows<float> out, kiln::attention::LogSums lse,
    const float* sinks, const int* query_offsets, const int* key_lengths, kiln::view<const int, 1> block_table,
    long long batch, long long queries, long long keys, long long heads, long long key_heads, int page_size, int pages,
    float scale, float cap, long long window_left, long long step, kiln::attention::HeadScales k_scale,
    kiln::attention::HeadScales v_scale) {
  using namespace kiln::attention;
  __shared__ ReferenceStorage shared;
  const int head = blockIdx.y;
  const Sequences sequences = {query_offsets, key_lengths, static_cast<int>(batch), static_cast<int>(queries),
                               static_cast<int>(keys)};
  int row;
  Sequence of;
  if (!find_sequence<Form::layout, true>(sequences, blockIdx.x, row, of)) return;
  const Visible<Form::mask> visible(of.queries, of.keys, {true, small(window_left), 0});
  const int begin = visible.begin(row), end = visible.end(row);
  const bool is_sampled = (blockIdx.y * static_cast<long long>(gridDim.x) + blockIdx.x) % step == 0;
  if (begin < end && !is_sampled) return;

  const long long token = of.first_query + row;
  const int key_head = static_cast<int>(head / (heads / key_heads));
  constexpr bool has_bytes = sizeof(Cache) == 1;
  reference_of_row<PagedReference<Form, Cache>>(
      q.at + token * q.row_stride + head * q.head_stride,
      {k,
       v,
       {of.first_key, block_table.address + of.first_key * block_table.strides[0], page_size, pages},
       key_head,
       has_bytes ? logit_scale(scale, 1.0f, k_scale[key_head]) : scale,
       has_bytes ? v_scale[key_head] : 1.0f},
      begin, end, cap, Form::sinks == Sinks::head ? sinks + head : nullptr, shared,
      is_sampled ? out.at + token * out.row_stride + head * out.head_stride : nullptr,
      lse.at == nullptr ? nullptr : lse.at + head * lse.head_stride + token);
}
