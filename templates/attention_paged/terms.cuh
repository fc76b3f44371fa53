// What attention_paged's kernels are given beside tensors and sizes.
#pragma once

#include "common/attention/problem.cuh"

namespace kiln::attention {

/// The diagonal joins last query and last key.
template <typename T>
__device__ __forceinline__ ForwardTerms<T> paged_terms(float scale, float cap, long long window_left,
                                                       const float* sinks) {
  return {{scale, cap, 1, window_left, 0, nullptr, {nullptr, 0, 0, 0}, nullptr, 0.0f}, sinks};
}

}  // namespace kiln::attention
