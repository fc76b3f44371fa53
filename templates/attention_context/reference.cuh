// attention_context in double, a row of the result a block.
#pragma once

#include "common/attention/problem.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// grid (rows of all sequences, heads), block (256). q, k and v are the parts of all ranks, one after another; lse may be null. It computes
/// each step-th row.
template <typename T, int head_dim, int value_dim, attention::Mask mask>
__global__ __launch_bounds__(256) void attention_context_reference(
    attention::HeadRows<const T> q, attention::HeadRows<const T> k, attention::HeadRows<const T> v,
    attention::HeadRows<float> out, float* lse, long long batch, long long rows, long long heads, long long key_heads,
    float scale, long long world, int rank, long long step) {
  __shared__ double scratch[2][8];
  __shared__ double weights[256];
  const int thread = threadIdx.x, head = blockIdx.y;
  if ((blockIdx.y * static_cast<long long>(gridDim.x) + blockIdx.x) % step != 0) return;
  const long long token = blockIdx.x, sequence = token / rows, key_head = head / (heads / key_heads);
  const long long end = mask == attention::Mask::causal ? rank * rows + token % rows + 1 : world * rows;
  /// The row of a key, of 0 to `end` - 1, in a tensor that holds the parts of all ranks.
  const auto row_of = [&](long long key) { return (key / rows * batch + sequence) * rows + key % rows; };
  const T* const query = q.at + (rank * batch * rows + token) * q.row_stride + head * head_dim;
  const auto logit = [&](long long key) {
    const T* const at = k.at + row_of(key) * k.row_stride + key_head * head_dim;
    double dot = 0;
    for (int i = 0; i < head_dim; ++i) dot += to_double(query[i]) * to_double(at[i]);
    return dot * scale;
  };

  const auto larger = [](double a, double b) { return a > b ? a : b; };
  const double lowest = -static_cast<double>(infinity());
  double largest = lowest;
  for (long long key = thread; key < end; key += 256) largest = larger(logit(key), largest);
  largest = block_reduce<8>(warp_reduce(largest, larger), lowest, larger, scratch[0]);

  double sum = 0, result = 0;  // of this thread's keys; of its column
  for (long long first = 0; first < end; first += 256) {
    const int here = static_cast<int>(min(end - first, 256ll));
    __syncthreads();
    if (thread < here) sum += weights[thread] = exp(logit(first + thread) - largest);
    __syncthreads();
    if (thread >= value_dim) continue;
    for (int i = 0; i < here; ++i)
      result += weights[i] * to_double(v.at[row_of(first + i) * v.row_stride + key_head * value_dim + thread]);
  }
  sum = block_reduce<8>(warp_reduce(sum, add{}), 0.0, add{}, scratch[1]);

  if (thread < value_dim) out.at[token * out.row_stride + head * value_dim + thread] = static_cast<float>(result / sum);
  if (lse != nullptr && thread == 0) lse[head * batch * rows + token] = static_cast<float>(largest + log(sum));
}

}  // namespace kiln
