// What parts of a plane leave, how they become results, and where these go.
#pragma once

#include "common/attention/softmax_rows.cuh"
#include "parts.cuh"

namespace kiln::attention {

/// A row's softmax over some keys: the largest logit to base 2, and the sum of 2^(logit - largest).
struct RowState {
  float largest, sum;

  /// What sums from `largest` are multiplied by to be from `top`; 0 where there was no key.
  __device__ __forceinline__ float factor(float top) const {
    return largest == -infinity() ? 0.0f : exp2_approx(largest - top);
  }
};

/// After all keys. A row without keys and sink gives 0 and -inf.
template <Sinks sinks>
__device__ __forceinline__ RowEnd finish_row(const RowState& row, float sink) {
  if constexpr (sinks == Sinks::none)
    return {row.sum == 0.0f ? 0.0f : 1.0f / row.sum,
            row.sum == 0.0f ? -infinity() : row.largest * ln_2 + logf(row.sum)};
  const float top = fmaxf(row.largest, sink * log2_e);
  if (top == -infinity()) return {0.0f, top};
  const float with_sink = row.sum * row.factor(top) + exp2_approx(sink * log2_e - top);
  return {row.factor(top) / with_sink, top * ln_2 + logf(with_sink)};
}

/// How rows of planes stand for queries and heads: query by query, the heads that share a key head side by side.
struct PlaneRows {
  int queries, key_heads, group;  // group: heads of a key head

  __device__ __forceinline__ PlaneRows(int query_count, int heads, int key_head_count)
      : queries(query_count), key_heads(key_head_count), group(heads / key_head_count) {}

  __device__ __forceinline__ int count(int tile_m) const { return key_heads * ceil_div(queries * group, tile_m); }
  __device__ __forceinline__ int key_head(int plane) const { return plane % key_heads; }

  struct At {
    int query, head;
    bool exists;
  };
  __device__ __forceinline__ At at(int plane, int row, int tile_m) const {
    const int of_head = plane / key_heads * tile_m + row, query = of_head / group;
    return {query, plane % key_heads * group + of_head - query * group, query < queries};
  }
};

/// Results and their strides in elements.
template <typename T>
struct Results {
  T* out;
  float* lse;          // may be null
  const float* sinks;  // one a head
  long long out_batch_stride, out_row_stride, out_head_stride, lse_batch_stride, lse_head_stride;

  template <Sinks kind>
  __device__ __forceinline__ RowEnd finish(const RowState& row, int sequence, const PlaneRows::At& at,
                                           bool writes_lse) const {
    const RowEnd end = finish_row<kind>(row, kind == Sinks::head ? sinks[at.head] : 0.0f);
    if (writes_lse && lse != nullptr) lse[sequence * lse_batch_stride + at.head * lse_head_stride + at.query] = end.lse;
    return end;
  }
  /// Four columns from `column` on, of which the address is a multiple of 8 bytes.
  __device__ __forceinline__ void store(int sequence, const PlaneRows::At& at, int column,
                                        const vec<float, 4>& values) const {
    kiln::store_packed<4>(
        out + sequence * out_batch_stride + at.query * out_row_stride + at.head * out_head_stride + column,
        from_floats<T, 4>(values));
  }
};

/// Sums of weighted values and states of rows, by slot, in a workspace.
template <int tile_m, int value_dim>
struct Partials {
  float* sums;       // [slots, tile_m, value_dim]
  RowState* states;  // [slots, tile_m]

  __device__ __forceinline__ float* sums_at(long long slot, int row) const {
    return sums + (slot * tile_m + row) * value_dim;
  }
  __device__ __forceinline__ RowState& state_at(long long slot, int row) const { return states[slot * tile_m + row]; }
};

}  // namespace kiln::attention
