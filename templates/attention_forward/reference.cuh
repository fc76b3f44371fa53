// attention_forward in double, a row of the result a block: for each key the query sees, exp(logit - largest), then sums.
#pragma once

#include "common/attention/reference_terms.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln::attention {

template <typename Form>
__device__ double reference_logit(const typename Form::T* query, const typename Form::T* key, double scale,
                                  double cap) {
  double dot = 0;
  for (int i = 0; i < Form::head_dim; ++i) dot += to_double(query[i]) * to_double(key[i]);
  return Form::soft_cap == SoftCap::tanh ? cap * tanh(dot * scale / cap) : dot * scale;
}

}  // namespace kiln::attention

/// grid (rows of q in all planes, heads), block (256). out is float. Scales are read of e4m3 alone, else null. It computes each
/// step-th row, and the lse of all that see no key, since that is not finite.
template <typename Form>
__global__ __launch_bounds__(256) void attention_forward_reference(
    kiln::attention::HeadRows<const typename Form::T> q, kiln::attention::HeadRows<const typename Form::T> k,
    kiln::attention::HeadRows<const typename Form::T> v, kiln::attention::HeadRows<float> out,
    kiln::attention::LogSums lse, const float* q_scale, const float* k_scale, const float* v_scale, const float* sinks,
    const int* query_offsets, const int* key_offsets, long long batch, long long queries, long long keys,
    long long heads, long long key_heads, float scale, float cap, int from_end, long long window_left,
    long long window_right, long long step, const float* slopes, kiln::attention::BiasRows<typename Form::T> bias,
    const long long* dropout_seed, float dropout_p) {
  using namespace kiln::attention;
  __shared__ double scratch[2][8];
  __shared__ double weights[256];
  const int head = blockIdx.y, thread = threadIdx.x;
  const Sequences sequences = {query_offsets, key_offsets, static_cast<int>(batch), static_cast<int>(queries),
                               static_cast<int>(keys)};
  int row;
  Sequence of;
  if (!find_sequence<Form::layout, true>(sequences, blockIdx.x, row, of)) return;

  const Visible<Form::mask> visible(of.queries, of.keys, {from_end != 0, small(window_left), small(window_right)});
  const int begin = visible.begin(row), end = visible.end(row);
  const bool is_sampled = (blockIdx.y * static_cast<long long>(gridDim.x) + blockIdx.x) % step == 0;
  if (begin < end && !is_sampled) return;
  const long long key_head = head / (heads / key_heads), position = of.first_query + row;
  const auto* const query = q.at + of.plane * q.batch_stride + position * q.row_stride + head * q.head_stride;
  const ScoreInputs<typename Form::T> inputs = {slopes, bias, dropout_seed, dropout_p};
  const double logit_scale =
      q_scale == nullptr ? scale : static_cast<double>(scale) * q_scale[head] * k_scale[key_head];
  const auto logit = [&](int key) {
    const auto* const at =
        k.at + of.plane * k.batch_stride + (of.first_key + key) * k.row_stride + key_head * k.head_stride;
    return reference_logit<Form>(query, at, logit_scale, cap) +
           reference_terms<Form>(inputs, visible, of, head, row, key);
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
    if (thread < here) {
      const double weight = largest == lowest ? 0 : exp(logit(first + thread) - largest);
      sum += weight;
      weights[thread] = weight * reference_kept<Form>(inputs, of, head, row, first + thread);
    }
    __syncthreads();
    if (thread >= Form::value_dim) continue;
    for (int i = 0; i < here; ++i)
      result +=
          weights[i] * kiln::to_double(v.at[of.plane * v.batch_stride + (of.first_key + first + i) * v.row_stride +
                                            key_head * v.head_stride + thread]);
  }
  sum = kiln::block_reduce<8>(kiln::warp_reduce(sum, kiln::add{}), 0.0, kiln::add{}, scratch[1]);
  if (Form::sinks == Sinks::head && largest != lowest) sum += exp(sinks[head] - largest);
  if (v_scale != nullptr) result *= v_scale[key_head];

  if (is_sampled && thread < Form::value_dim)
    out.at[of.plane * out.batch_stride + position * out.row_stride + head * out.head_stride + thread] =
        sum == 0 ? 0.0f : static_cast<float>(result / sum);
  if (lse.at != nullptr && thread == 0)
    lse.at[of.plane * lse.batch_stride + head * lse.head_stride + position] =
        static_cast<float>(sum == 0 ? lowest : largest + log(sum));
}
