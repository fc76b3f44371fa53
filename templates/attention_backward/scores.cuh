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

/// Facts of columns 8 * group + 2 * (lane % 4) and the next.
struct OfTwo {
  float of[2];
};

/// Facts of a tile's queries in shared memory, row by row.
struct FactsByRow {
  const RowFacts* tile;

  __device__ __forceinline__ OfTwo lse2(int group) const {
    const TwoFacts two = at(group);
    return {{two.of[0].lse2, two.of[1].lse2}};
  }
  __device__ __forceinline__ OfTwo delta(int group) const {
    const TwoFacts two = at(group);
    return {{two.of[0].delta, two.of[1].delta}};
  }

 private:
  struct TwoFacts {
    RowFacts of[2];
  };
  __device__ __forceinline__ TwoFacts at(int group) const {
    return __builtin_bit_cast(TwoFacts,
                              reinterpret_cast<const uint4*>(tile)[group * 4 + static_cast<int>(threadIdx.x) % 4]);
  }
};

/// Facts of a tile's queries in shared memory, all lse2 before all deltas. Each is read where the other is not used, in
/// half of the accesses.
struct FactsApart {
  const float *lse2s, *deltas;

  __device__ __forceinline__ OfTwo lse2(int group) const { return at(lse2s, group); }
  __device__ __forceinline__ OfTwo delta(int group) const { return at(deltas, group); }

 private:
  static __device__ __forceinline__ OfTwo at(const float* values, int group) {
    const float2 two = reinterpret_cast<const float2*>(values)[group * 4 + static_cast<int>(threadIdx.x) % 4];
    return {{two.x, two.y}};
  }
};

/// The same of weights times 2^bits.
template <int bits>
struct FactsTimes {
  FactsApart of;

  __device__ __forceinline__ OfTwo lse2(int group) const {
    const OfTwo two = of.lse2(group);
    return {{two.of[0] - bits, two.of[1] - bits}};
  }
  __device__ __forceinline__ OfTwo delta(int group) const {
    const OfTwo two = of.delta(group);
    return {{two.of[0] / (1 << bits), two.of[1] / (1 << bits)}};
  }
};

/// 2^x to one part in 9,800, and 0 from -126.5 down. Takes no exponential unit, of which a multiprocessor has 16.
__device__ __forceinline__ float exp2_by_fma(float x) {
  // 1.5 * 2^23: sums with it are rounded to whole numbers, which are their last bits.
  constexpr float shift = 12582912.0f;
  const float at_least = x < -127.0f ? -127.0f : x, whole = at_least + shift, rest = at_least - (whole - shift);
  const float of_rest = fmaf(rest, fmaf(rest, fmaf(rest, 0.055009126f, 0.24221145f), 0.69328296f), 1.0f);
  return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, of_rest) + (__builtin_bit_cast(unsigned, whole) << 23));
}

/// From products of keys and queries to weights, and from the products of values and gradients to the gradients of those products.
template <typename T, SoftCap soft_cap, int count>
struct TileGradient {
  float weights[count];
  float slopes[soft_cap == SoftCap::tanh ? count
                                         : 1];  // what a change of a product changes in a logit, as a part of `scale`

  /// Three of eight exponentials of wide tiles, which wait for the units: the best share of some that were timed.
  static constexpr __device__ bool by_fma(int i) {
    return count > 32 && is_same<T, bf16> && (i % 4 == 3 || i % 8 == 1);
  }

  /// `products` are used up. Queries are those of the facts.
  template <typename Terms, typename Facts>
  __device__ __forceinline__ void take_weights(float (&products)[count], const Scores<soft_cap>& to_scores,
                                               const Terms& terms, const Facts& facts) {
    to_scores.cap(products);
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const OfTwo lse2 = facts.lse2(i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (soft_cap == SoftCap::tanh) slopes[i + j] = fmaf(-products[i + j], products[i + j], 1.0f);
        const float power = fmaf(terms.add(products[i + j], i + j), to_scores.rate, -lse2.of[j % 2]);
        weights[i + j] = by_fma(i + j) ? exp2_by_fma(power) : exp2_approx(power);
      }
    }
  }
  /// Turns the products of values and gradients into gradients of products of keys and queries, of which `scale` is left out. Those of
  /// weights that are `kept` are multiplied by `kept_scale`.
  template <typename Kept, typename Facts>
  __device__ __forceinline__ void take_gradients(float (&products)[count], const Kept& kept, float kept_scale,
                                                 const Facts& facts) const {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const OfTwo delta = facts.delta(i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        products[i + j] =
            weights[i + j] * fmaf(kept.keep(products[i + j], i + j), kept_scale / weight_scale<T>, -delta.of[j % 2]);
        if constexpr (soft_cap == SoftCap::tanh) products[i + j] *= slopes[i + j];
      }
    }
  }
};

}  // namespace kiln::attention
