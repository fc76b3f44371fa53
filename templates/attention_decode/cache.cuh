// What attention_decode's choices mean, and how many keys a sequence has.
#pragma once

#include "common/attention/cache_rows.cuh"
#include "common/attention/offset_reports.cuh"
#include "common/attention/problem.cuh"
#include "common/length.cuh"

namespace kiln::attention {

/// The words of the choices, as op.toml spells them.
enum class Invariant { no, yes };

/// What a kernel is compiled for, beside its tile.
template <typename T_, int head_dim_, int value_dim_, CacheLayout layout_, Mask mask_, SoftCap soft_cap_, Sinks sinks_,
          Invariant invariant_, typename Cache_ = T_>
struct DecodeForm {
  using T = T_;          // of queries and results
  using Cache = Cache_;  // of keys and values: T, or e4m3
  static constexpr bool has_bytes = sizeof(Cache) == 1;
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr CacheLayout layout = layout_;
  static constexpr Mask mask = mask_;
  static constexpr SoftCap soft_cap = soft_cap_;
  static constexpr Sinks sinks = sinks_;
  static constexpr Invariant invariant = invariant_;
};

/// The keys that queries of a sequence see, from `begin` to before `end`, and the blocks of keys that have any: `blocks` from `first`
/// on. A sequence without keys has one block, so that a block writes its results.
struct Extent {
  int begin, end, first, blocks;
};

/// Batches of sequences, whose lengths are in device memory.
template <Mask mask>
struct Batch {
  const int* key_lengths;      // one outside of 0 .. longest counts as the nearer end
  unsigned long long* report;  // where such a length is told to the host, as axis_length does; may be null
  int sequences, longest, queries, window_left;

  __device__ __forceinline__ Batch(const int* lengths, const axis_length& batch, const axis_length& keys,
                                   int query_count, long long window)
      : key_lengths(lengths),
        report(keys.report),
        sequences(batch.read()),
        longest(keys.read()),
        queries(query_count),
        window_left(small(window)) {}

  __device__ __forceinline__ Visible<mask> visible(int sequence) const {
    return {queries, min(max(key_lengths[sequence], 0), longest), {true, window_left, 0}};
  }
  __device__ __forceinline__ Extent extent(int sequence, int block_n) const {
    const Visible<mask> of = visible(sequence);
    const int begin = of.begin(0), end = of.end(queries - 1), first = begin / block_n;
    if (end <= begin) return {0, 0, 0, 1};
    return {begin, end, first, ceil_div(end, block_n) - first};
  }
  __device__ __forceinline__ void tell_if_outside(int sequence) const {
    const int length = key_lengths[sequence];
    if (length < 0 || length > longest) report_length(report, length, longest);
  }
};

}  // namespace kiln::attention
