// attention_backward in double, by the formulas of op.toml. A block computes a row of dq, then one a row of dk and dv,
// then one an element of dsink.
#pragma once

#include "common/attention/reference_terms.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln::attention {

/// Tensors and what the reference needs of them.
template <typename T>
struct ReferenceInputs {
  HeadRows<const T> q, k, v, out;
  LogSums lse;
  HeadRows<const T> dout;
  double scale, cap;

  __device__ const T* query(int plane, long long row, int head) const {
    return q.at + plane * q.batch_stride + row * q.row_stride + head * q.head_stride;
  }
  __device__ const T* key(int plane, long long row, int head) const {
    return k.at + plane * k.batch_stride + row * k.row_stride + head * k.head_stride;
  }

  /// Computes the weight of one query and one key, and the gradient of their product times `scale`. `added` is added to
  /// their logit, and the weight is multiplied by `kept`.
  template <typename Form>
  __device__ void pair(int plane, long long query_row, int head, long long key_row, int key_head, double added,
                       double kept, double& weight, double& change) const {
    const T *const a = query(plane, query_row, head), *const b = key(plane, key_row, key_head);
    double dot = 0, slope = 1;
    for (int i = 0; i < Form::head_dim; ++i) dot += to_double(a[i]) * to_double(b[i]);
    dot *= scale;
    if constexpr (Form::soft_cap == SoftCap::tanh) {
      const double bent = tanh(dot / cap);
      slope = 1 - bent * bent;
      dot = cap * bent;
    }
    const T* const result = out.at + plane * out.batch_stride + query_row * out.row_stride + head * out.head_stride;
    const T* const gradient =
        dout.at + plane * dout.batch_stride + query_row * dout.row_stride + head * dout.head_stride;
    const T* const value = v.at + plane * v.batch_stride + key_row * v.row_stride + key_head * v.head_stride;
    double difference = 0;  // of the gradient's products with this value, and with the result
    for (int i = 0; i < Form::value_dim; ++i)
      difference += to_double(gradient[i]) * (kept * to_double(value[i]) - to_double(result[i]));
    const double of_row = lse.at[plane * lse.batch_stride + head * lse.head_stride + query_row];
    weight = of_row == -static_cast<double>(infinity()) ? 0 : exp(dot + added - of_row);
    change = weight * difference * slope * scale;
    weight *= kept;
  }
};

/// Whether the row of this block is sampled: each step-th row of a pass is. Rows of zeros, since nothing is seen, count
/// as one in 64, for they would lower the root mean square by which errors are judged.
__device__ inline bool is_sampled(long long step) {
  return (blockIdx.y * static_cast<long long>(gridDim.x) + blockIdx.x) % step == 0;
}
inline constexpr long long step_of_zeros = 64;

}  // namespace kiln::attention

/// grid (rows of q in all planes, heads), block (256): each step-th row of dq, which is float and lies as q does.
template <typename Form>
__global__ __launch_bounds__(256) void attention_backward_reference_queries(
    kiln::attention::HeadRows<const typename Form::T> q, kiln::attention::HeadRows<const typename Form::T> k,
    kiln::attention::HeadRows<const typename Form::T> v, kiln::attention::HeadRows<const typename Form::T> out,
    kiln::attention::LogSums lse, kiln::attention::HeadRows<const typename Form::T> dout, const int* query_offsets,
    const int* key_offsets, kiln::attention::HeadRows<float> dq, long long batch, long long queries, long long keys,
    long long heads, long long key_heads, float scale, float cap, int from_end, long long window_left,
    long long window_right, long long step, const float* slopes, kiln::attention::BiasRows<typename Form::T> bias,
    const long long* dropout_seed, float dropout_p) {
  using namespace kiln::attention;
  __shared__ double changes[256];
  if (!is_sampled(step)) return;
  const ScoreInputs<typename Form::T> inputs = {slopes, bias, dropout_seed, dropout_p};
  const ReferenceInputs<typename Form::T> in = {q, k, v, out, lse, dout, scale, cap};
  const int head = blockIdx.y, thread = threadIdx.x, key_head = static_cast<int>(head / (heads / key_heads));
  int row;
  Sequence of;
  if (!find_sequence<Form::layout, true>(
          {query_offsets, key_offsets, static_cast<int>(batch), static_cast<int>(queries), static_cast<int>(keys)},
          blockIdx.x, row, of))
    return;
  const Visible<Form::mask> visible(of.queries, of.keys, {from_end != 0, small(window_left), small(window_right)});
  const int begin = visible.begin(row), end = visible.end(row);
  if (begin >= end && !is_sampled(step * step_of_zeros)) return;
  const long long position = of.first_query + row;
  double result = 0;  // of this thread's column
  for (int first = begin; first < end; first += 256) {
    const int here = min(end - first, 256);
    double weight;
    __syncthreads();
    if (thread < here)
      in.template pair<Form>(of.plane, position, head, of.first_key + first + thread, key_head,
                             reference_terms<Form>(inputs, visible, of, head, row, first + thread),
                             reference_kept<Form>(inputs, of, head, row, first + thread), weight, changes[thread]);
    __syncthreads();
    if (thread >= Form::head_dim) continue;
    for (int i = 0; i < here; ++i)
      result += changes[i] * kiln::to_double(in.key(of.plane, of.first_key + first + i, key_head)[thread]);
  }
  if (thread < Form::head_dim)
    dq.at[of.plane * dq.batch_stride + position * dq.row_stride + head * dq.head_stride + thread] =
        static_cast<float>(result);
}

/// grid (rows of k in all planes, key heads), block (256). Computes each step-th row of dk and dv, which are float and
/// lie as k and v do.
template <typename Form>
__global__ __launch_bounds__(256) void attention_backward_reference_keys(
    kiln::attention::HeadRows<const typename Form::T> q, kiln::attention::HeadRows<const typename Form::T> k,
    kiln::attention::HeadRows<const typename Form::T> v, kiln::attention::HeadRows<const typename Form::T> out,
    kiln::attention::LogSums lse, kiln::attention::HeadRows<const typename Form::T> dout, const int* query_offsets,
    const int* key_offsets, kiln::attention::HeadRows<float> dk, kiln::attention::HeadRows<float> dv, long long batch,
    long long queries, long long keys, long long heads, long long key_heads, float scale, float cap, int from_end,
    long long window_left, long long window_right, long long step, const float* slopes,
    kiln::attention::BiasRows<typename Form::T> bias, const long long* dropout_seed, float dropout_p) {
  using namespace kiln::attention;
  __shared__ double weights[256];
  __shared__ double changes[256];
  __shared__ double scratch[8];
  if (!is_sampled(step)) return;
  const ScoreInputs<typename Form::T> inputs = {slopes, bias, dropout_seed, dropout_p};
  const ReferenceInputs<typename Form::T> in = {q, k, v, out, lse, dout, scale, cap};
  const int key_head = blockIdx.y, thread = threadIdx.x, group = static_cast<int>(heads / key_heads);
  int row;
  Sequence of;
  if (!find_sequence<Form::layout, false>(
          {query_offsets, key_offsets, static_cast<int>(batch), static_cast<int>(queries), static_cast<int>(keys)},
          blockIdx.x, row, of))
    return;
  const Visible<Form::mask> visible(of.queries, of.keys, {from_end != 0, small(window_left), small(window_right)});
  const long long position = of.first_key + row;
  double of_key = 0, of_value = 0;  // of this thread's column
  double seen = 0;                  // times, by this thread's queries
  for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
    for (int first = 0; first < of.queries; first += 256) {
      const int here = min(of.queries - first, 256), query = first + thread;
      __syncthreads();
      if (thread < here) {
        weights[thread] = changes[thread] = 0;
        if (visible.begin(query) <= row && row < visible.end(query)) {
          ++seen;
          in.template pair<Form>(of.plane, of.first_query + query, head, position, key_head,
                                 reference_terms<Form>(inputs, visible, of, head, query, row),
                                 reference_kept<Form>(inputs, of, head, query, row), weights[thread], changes[thread]);
        }
      }
      __syncthreads();
      for (int i = 0; i < here; ++i) {
        if (weights[i] == 0 && changes[i] == 0) continue;
        const long long at = of.first_query + first + i;
        if (thread < Form::head_dim) of_key += changes[i] * kiln::to_double(in.query(of.plane, at, head)[thread]);
        if (thread < Form::value_dim)
          of_value +=
              weights[i] *
              kiln::to_double(
                  dout.at[of.plane * dout.batch_stride + at * dout.row_stride + head * dout.head_stride + thread]);
      }
    }
  }
  seen = kiln::block_reduce<8>(kiln::warp_reduce(seen, kiln::add{}), 0.0, kiln::add{}, scratch);
  if (seen == 0 && !is_sampled(step * step_of_zeros)) return;
  if (thread < Form::head_dim)
    dk.at[of.plane * dk.batch_stride + position * dk.row_stride + key_head * dk.head_stride + thread] =
        static_cast<float>(of_key);
  if (thread < Form::value_dim)
    dv.at[of.plane * dv.batch_stride + position * dv.row_stride + key_head * dv.head_stride + thread] =
        static_cast<float>(of_value);
}

/// grid (heads), block (1024). dout lies as out does; dsink may be null.
template <typename T, int value_dim, kiln::attention::Layout layout>
__global__ __launch_bounds__(1024) void attention_backward_reference_sinks(kiln::attention::HeadRows<const T> out,
                                                                           kiln::attention::LogSums lse, const T* dout,
                                                                           const float* sinks, const int* query_offsets,
                                                                           float* dsink, long long batch,
                                                                           long long queries) {
  using namespace kiln::attention;
  __shared__ double scratch[32];
  if (dsink == nullptr) return;
  const int head = blockIdx.x;
  const long long planes = layout == Layout::dense ? batch : 1;
  double sum = 0;
  for (long long i = threadIdx.x; i < planes * queries; i += 1024) {
    const long long plane = i / queries, row = i % queries;
    if (layout == Layout::packed && (row < query_offsets[0] || row >= query_offsets[batch])) continue;
    double delta = 0;
    const long long at = plane * out.batch_stride + row * out.row_stride + head * out.head_stride;
    for (int column = 0; column < value_dim; ++column)
      delta += kiln::to_double(out.at[at + column]) * kiln::to_double(dout[at + column]);
    const float of_row = lse.at[plane * lse.batch_stride + head * lse.head_stride + row];
    if (of_row != -kiln::infinity()) sum -= exp(double{sinks[head]} - of_row) * delta;
  }
  sum = kiln::block_reduce<32>(kiln::warp_reduce(sum, kiln::add{}), 0.0, kiln::add{}, scratch);
  if (threadIdx.x == 0) dsink[head] = static_cast<float>(sum);
}
