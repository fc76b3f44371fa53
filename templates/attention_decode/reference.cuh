// attention_decode in double, a row of the result a block: for each key the query sees, exp(logit - largest), then sums.
#pragma once

#include "byte_tile.cuh"
#include "cache.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

namespace kiln::attention {

template <typename Form>
__device__ double reference_logit(const typename Form::T* query, const typename Form::Cache* key, double scale,
                                  double cap) {
  double dot = 0;
  for (int i = 0; i < Form::head_dim; ++i) dot += to_double(query[i]) * to_double(key[i]);
  return Form::soft_cap == SoftCap::tanh ? cap * tanh(dot * scale / cap) : dot * scale;
}

}  // namespace kiln::attention

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
  __shared__ double scratch[2][8];
  __shared__ double weights[256];
  const int head = blockIdx.y, thread = threadIdx.x;
  const int sequence = static_cast<int>(blockIdx.x / queries), row = static_cast<int>(blockIdx.x % queries);
  const Visible<Form::mask> visible(static_cast<int>(queries),
                                    min(max(key_lengths[sequence], 0), static_cast<int>(keys)),
                                    {true, small(window_left), 0});
  const int begin = visible.begin(row), end = visible.end(row);
  const bool is_sampled = (blockIdx.y * static_cast<long long>(gridDim.x) + blockIdx.x) % step == 0;
  if (begin < end && !is_sampled) return;

  const long long key_head = head / (heads / key_heads);
  const CacheUnits<Form::has_bytes> units(k_scale, v_scale, static_cast<int>(key_head));
  const double logit_unit = units.of_logits(scale, 1.0f);
  const CacheRows<Form::layout> rows = {sequence, block_table.address + sequence * block_table.strides[0], page_size,
                                        pages};
  const auto* const query = q.at + sequence * q.batch_stride + row * q.row_stride + head * q.head_stride;
  const auto logit = [&](int key) {
    const CacheRow at = rows.at(key);
    return reference_logit<Form>(
        query, k.at + at.outer * k.batch_stride + at.row * k.row_stride + key_head * k.head_stride, logit_unit, cap);
  };
  const auto larger = [](double a, double b) { return a > b ? a : b; };
  const double lowest = -static_cast<double>(kiln::infinity());
  double largest = Form::sinks == Sinks::head ? sinks[head] : lowest;
  for (int key = begin + thread; key < end; key += 256) largest = larger(logit(key), largest);
  largest = kiln::block_reduce<8>(kiln::warp_reduce(largest, larger), lowest, larger, scratch[0]);

  double sum = 0, result = 0;  // of this thread's keys; of its column
  for (int first = begin; first < end; first += 256) {
    const int here = min(end - first, 256);
    __syncthreads();
    if (thread < here) sum += weights[thread] = exp(logit(first + thread) - largest);
    __syncthreads();
    if (thread >= Form::value_dim) continue;
    for (int i = 0; i < here; ++i) {
      const CacheRow at = rows.at(first + i);
      result +=
          weights[i] *
          kiln::to_double(v.at[at.outer * v.batch_stride + at.row * v.row_stride + key_head * v.head_stride + thread]);
    }
  }
  sum = kiln::block_reduce<8>(kiln::warp_reduce(sum, kiln::add{}), 0.0, kiln::add{}, scratch[1]);
  if (Form::sinks == Sinks::head && largest != lowest) sum += exp(sinks[head] - largest);

  if (is_sampled && thread < Form::value_dim)
    out.at[sequence * out.batch_stride + row * out.row_stride + head * out.head_stride + thread] =
        sum == 0 ? 0.0f : static_cast<float>(result / sum * units.of_values());
  if (lse.at != nullptr && thread == 0)
    lse.at[sequence * lse.batch_stride + head * lse.head_stride + row] =
        static_cast<float>(sum == 0 ? lowest : largest + log(sum));
}
