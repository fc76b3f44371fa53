// Inputs for verification and timing: attention_forward's own, its results, and their gradient.
#pragma once

#include "common/attention/forward_mma.cuh"
#include "common/attention/prepare.cuh"

/// grid (queries in all planes), block (128). Gradients of a query that sees n keys are in [-1, 1) times n^(3/8),
/// beside values that grow as attention_values makes them. Weights are about 1 / n. Then, where query i sees i keys, dv
/// of key j goes as (j^-1/4 - n^-1/4)^1/2 and dq of row i as i^3/8. So no part of a tensor is far from its root mean
/// square, by which errors are judged.
template <typename T, kiln::attention::Layout layout, kiln::attention::Mask mask>
__global__ __launch_bounds__(128) void attention_gradients(kiln::attention::HeadRows<T> dout, const int* query_offsets,
                                                           const int* key_offsets, long long batch, long long queries,
                                                           long long keys, long long heads, long long value_dim,
                                                           int from_end, long long window_left, long long window_right,
                                                           unsigned long long seed) {
  using kiln::attention::Layout;
  const long long plane = layout == Layout::dense ? blockIdx.x / queries : 0;
  const long long query = layout == Layout::dense ? blockIdx.x % queries : blockIdx.x;
  long long first = 0, own_queries = queries, own_keys = keys;
  if constexpr (layout == Layout::packed)
    for (long long i = 0; i < batch && query_offsets[i] <= query; ++i) {
      first = query_offsets[i];
      own_queries = query_offsets[i + 1] - first;
      own_keys = key_offsets[i + 1] - key_offsets[i];
    }
  const kiln::attention::Visible<mask> visible(
      static_cast<int>(own_queries), static_cast<int>(own_keys),
      {from_end != 0, kiln::attention::small(window_left), kiln::attention::small(window_right)});
  const int row = static_cast<int>(query - first), seen = visible.end(row) - visible.begin(row);
  const float root = sqrtf(sqrtf(static_cast<float>(max(seen, 1)))), size = root * sqrtf(root);
  for (long long i = threadIdx.x; i < heads * value_dim; i += 128) {
    const float value = kiln::attention::drawn_value(~seed, blockIdx.x * heads * value_dim + i) * size;
    const long long head = i / value_dim, column = i % value_dim;
    dout.at[plane * dout.batch_stride + query * dout.row_stride + head * dout.head_stride + column] =
        kiln::from_float<T>(value);
  }
}

/// grid (heads / 128), block (128): ALiBi's slopes, of both signs, which change a logit by 2 at most over all keys. By
/// steeper ones most queries would weigh the same few keys. Then dk and dv would lie in a few rows, and what rounding
/// leaves there would be far above their root mean square.
__global__ __launch_bounds__(128) void attention_slopes(float* slopes, long long heads, long long keys,
                                                        unsigned long long seed) {
  const long long head = blockIdx.x * 128ll + threadIdx.x;
  if (head < heads)
    slopes[head] =
        kiln::attention::drawn_value(seed + 2, head) * fminf(0.1f, 2.0f / static_cast<float>(max(keys, 1ll)));
}

/// Adds up to 1 / 4 to results, which are about 1 in size. Grid and block are as above. Right results leave a query
/// that sees one key a gradient of 0. Where all do, no error could be judged by the gradients' size.
template <typename T>
__global__ __launch_bounds__(128) void attention_results_moved(kiln::attention::HeadRows<T> out, long long queries,
                                                               long long heads, long long value_dim,
                                                               unsigned long long seed) {
  const long long plane = blockIdx.x / queries, query = blockIdx.x % queries;
  for (long long i = threadIdx.x; i < heads * value_dim; i += 128) {
    T& to = out.at[plane * out.batch_stride + query * out.row_stride + i / value_dim * out.head_stride + i % value_dim];
    const float by = kiln::attention::drawn_value(seed + 1, blockIdx.x * heads * value_dim + i) * 0.25f;
    to = kiln::from_float<T>(kiln::to_float(to) + by);
  }
}
