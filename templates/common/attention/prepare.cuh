// Inputs for verification and timing: offsets of packed sequences, by the cases of op.toml's [prepare], and values.
#pragma once

#include "common/attention/drawn_value.cuh"
#include "common/attention/problem.cuh"
#include "common/types.cuh"

namespace kiln::attention {

/// Where sequence `index` begins. `longest` of `tokens` at most are in one; it is no less than 4 * tokens / batch, or all.
__device__ inline long long packed_begin(long long index, long long batch, long long tokens, long long longest,
                                         unsigned long long seed, int which, bool of_keys) {
  if (index == batch) return tokens;
  if (which == 1) {  // skewed: queries rise by sequence, and keys fall
    const long long at = of_keys ? batch - index : index, begin = tokens * at / batch * at / batch;
    return of_keys ? tokens - begin : begin;
  }
  if (which == 2) {  // empty: two of three have no queries, each second has no keys
    const int run = of_keys ? 2 : 3;
    return tokens * (index / run * run) / batch;
  }
  if (which == 3) {  // one_long: the others share what it leaves
    const long long place = static_cast<long long>(seed % static_cast<unsigned long long>(batch));
    const long long most = batch == 1 ? tokens : min(longest, tokens), others = index > place ? index - 1 : index;
    return (index > place ? most : 0) + (batch == 1 ? 0 : (tokens - most) * others / (batch - 1));
  }
  return tokens * index / batch;  // equal
}

}  // namespace kiln::attention

/// grid (2): queries, then keys; block (256). Offsets have batch + 1 elements.
__global__ __launch_bounds__(256) void attention_offsets(int* query_offsets, int* key_offsets, long long batch,
                                                         long long queries, long long keys, long long longest_query,
                                                         unsigned long long seed, int which) {
  const bool of_keys = blockIdx.x == 1;
  int* const offsets = of_keys ? key_offsets : query_offsets;
  for (long long i = threadIdx.x; i <= batch; i += 256)
    offsets[i] = static_cast<int>(kiln::attention::packed_begin(i, batch, of_keys ? keys : queries,
                                                                of_keys ? keys : longest_query, seed, which, of_keys));
}

/// grid (keys in all planes), block (128): values of key j of a sequence, in [-1, 1) times sqrt(1 + j). A mean of n
/// such values is as large as a single one. So the results of queries that see few keys and many have the same size,
/// and one tolerance fits all.
template <typename T, kiln::attention::Layout layout>
__global__ __launch_bounds__(128) void attention_values(kiln::attention::HeadRows<T> v, const int* key_offsets,
                                                        long long batch, long long keys, long long key_heads,
                                                        long long value_dim, unsigned long long seed) {
  using kiln::attention::Layout;
  const long long plane = layout == Layout::dense ? blockIdx.x / keys : 0;
  const long long key = layout == Layout::dense ? blockIdx.x % keys : blockIdx.x;
  long long first = 0;
  if constexpr (layout == Layout::packed)
    for (long long i = 0; i < batch && key_offsets[i] <= key; ++i) first = key_offsets[i];
  const float size = sqrtf(static_cast<float>(min(1 + key - first, 1ll << 17)));  // e4m3 ends at 448
  for (long long i = threadIdx.x; i < key_heads * value_dim; i += 128) {
    const float value = kiln::attention::drawn_value(seed, blockIdx.x * key_heads * value_dim + i) * size;
    const long long head = i / value_dim, column = i % value_dim;
    v.at[plane * v.batch_stride + key * v.row_stride + head * v.head_stride + column] = kiln::from_float<T>(value);
  }
}

/// grid (1), block (256): a head's scales of 8-bit q, k and v, from 3 / 4 to 5 / 4.
__global__ __launch_bounds__(256) void attention_scales(float* q_scale, float* k_scale, float* v_scale, long long heads,
                                                        long long key_heads, unsigned long long seed) {
  const auto scale = [&](long long index) { return 1.0f + 0.25f * kiln::attention::drawn_value(~seed, index); };
  for (long long i = threadIdx.x; i < heads; i += 256) q_scale[i] = scale(i);
  for (long long i = threadIdx.x; i < key_heads; i += 256) {
    k_scale[i] = scale(heads + i);
    v_scale[i] = scale(heads + key_heads + i);
  }
}
