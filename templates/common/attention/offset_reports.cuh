// Tells the host of offsets that do not cut a tensor, and of lengths past their bound: they are clamped, and Engine::check names them.
#pragma once

#include "common/attention/problem.cuh"

namespace kiln::attention {

/// Tells a length outside of [0, bound] at what `{ report = "axis" }` passes, as axis_length does. May be null. One thread's word is enough.
__device__ __forceinline__ void report_length(unsigned long long* report, int length, int bound) {
  if (report != nullptr)
    *static_cast<volatile unsigned long long*>(report) =
        static_cast<unsigned long long>(bound) << 32 | static_cast<unsigned>(length);
}

/// Where offsets of queries and keys are told; may be null. No sequence has more than `longest` queries.
struct OffsetReports {
  unsigned long long *of_queries, *of_keys;
  int longest;

  /// Looks at every step-th sequence from the first. Each sequence is looked at by one thread of the grid.
  template <Layout layout>
  __device__ __forceinline__ void tell(const Sequences& all, int first, int step) const {
    if constexpr (layout != Layout::dense)
      for (int sequence = first; sequence < all.count; sequence += step) {
        tell_of(of_queries, all.query_offsets + sequence, all.queries, longest);
        if constexpr (layout == Layout::packed) {
          tell_of(of_keys, all.key_offsets + sequence, all.keys, all.keys);
        } else {
          const int keys = all.key_offsets[sequence];
          if (keys < 0 || keys > all.keys) report_length(of_keys, keys, all.keys);
        }
      }
  }

 private:
  /// An offset that is outside of the tensor, else a length that is less than 0 or too large.
  static __device__ __forceinline__ void tell_of(unsigned long long* report, const int* offsets, int tokens,
                                                 int longest) {
    const int begin = offsets[0], end = offsets[1];
    if (begin < 0 || begin > tokens) return report_length(report, begin, tokens);
    if (end < 0 || end > tokens) return report_length(report, end, tokens);
    if (end < begin || end - begin > longest) report_length(report, end - begin, longest);
  }
};

}  // namespace kiln::attention
