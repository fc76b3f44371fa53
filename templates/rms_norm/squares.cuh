#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// Elements: a vec or a row_share.
template <typename Elements>
__device__ __forceinline__ float sum_of_squares(const Elements& elements) {
  using T = typename Elements::element;
  return elements.template map<float>([](T element) { return to_float(element) * to_float(element); }).reduce(add{});
}

}  // namespace kiln
