// Scores of keys (rows) by queries (columns), in the fragments that tensor cores leave, and what becomes of them in the backward pass.
#pragma once

#include "common/attention/score_terms.cuh"
#include "rows.cuh"

namespace kiln::attention {

/// Queries, from `begin` to before `end`.
struct QueryRange {
  int begin, end;
};

/// Queries of a sequence that see any of the keys from `first` to before `end`; from 0 to 0 where none does.
template <Mask mask>
__device__ __forceinline__ QueryRange queries_of(const Visible<mask>& visible, int queries, int first, int end) {
  const int begin = mask == Mask::none ? 0 : max(first - visible.diagonal - visible.right, 0);
  const int past = mask == Mask::window ? min(end - visible.diagonal + visible.left, queries) : queries;
  if (past <= begin) return {0, 0};
  return {begin, past};
}

/// Which queries see a thread's two keys, 8 apart.
struct KeyLimits {
  int begin[2], end[2];

  template <Mask mask>
  __device__ __forceinline__ KeyLimits(const Visible<mask>& visible, int queries, int key) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int at = key + 8 * row;
      const QueryRange seen = queries_of(visible, at < visible.keys ? queries : 0, at, at + 1);
      begin[row] = seen.begin;
      end[row] = seen.end;
    }
  }

  /// Zeros for the queries, from `first` on, that do not see a key.
  template <int count>
  __device__ __forceinline__ void apply(float (&values)[count], int first) const {
    const int own = first + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int row = i / 2 % 2, column = i / 4 * 8 + i % 2;
      values[i] = column >= begin[row] - own && column < end[row] - own ? values[i] : 0.0f;
    }
  }
};

/// Whether all `count` queries from `query` on exist and see all `width` keys from `key` on.
template <Mask mask>
__device__ __forceinline__ bool all_seen(const Visible<mask>& visible, int queries, int query, int count, int key,
                                         int width) {
  const int last = query + count - 1;
  return last < queries && visible.end(query) >= key + width && visible.begin(last) <= key;
}

/// Of the queries of a tile, in shared memory: those of columns 8 * j + 2 * (lane % 4) and the next.
struct TwoFacts {
  RowFacts of[2];
};
__device__ __forceinline__ TwoFacts two_facts(const RowFacts* tile, int group) {
  return __builtin_bit_cast(TwoFacts,
                            reinterpret_cast<const uint4*>(tile)[group * 4 + static_cast<int>(threadIdx.x) % 4]);
}

/// From products of keys and queries to weights, and from the products of values and gradients to the gradients of those products.
template <typename T, SoftCap soft_cap, int count>
struct TileGradient {
  float weights[count];
  float slopes[soft_cap == SoftCap::tanh ? count
                                         : 1];  // what a change of a product changes in a logit, as a part of `scale`

  /// `products` are used up. Queries are those of `tile`.
  template <typename Terms>
  __device__ __forceinline__ void take_weights(float (&products)[count], const Scores<soft_cap>& to_scores,
                                               const Terms& terms, const RowFacts* tile) {
    to_scores.cap(products);
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const TwoFacts facts = two_facts(tile, i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (soft_cap == SoftCap::tanh) slopes[i + j] = fmaf(-products[i + j], products[i + j], 1.0f);
        weights[i + j] = exp2_approx(fmaf(terms.add(products[i + j], i + j), to_scores.rate, -facts.of[j % 2].lse2));
      }
    }
  }
  /// Turns the products of values and gradients into gradients of products of keys and queries, of which `scale` is left out.
  __device__ __forceinline__ void take_gradients(float (&products)[count], const RowFacts* tile) const {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const TwoFacts facts = two_facts(tile, i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        products[i + j] = weights[i + j] * fmaf(products[i + j], 1 / weight_scale<T>, -facts.of[j % 2].delta);
        if constexpr (soft_cap == SoftCap::tanh) products[i + j] *= slopes[i + j];
      }
    }
  }
};

}  // namespace kiln::attention
