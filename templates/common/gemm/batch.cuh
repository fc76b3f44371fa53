// Products of one batch, each with operands and results of its own.
#pragma once

#include "common/gemm/epilogue.cuh"

namespace kiln::gemm {

/// Elements from one product's tensor to the next one's; 0 where all have the same.
struct BatchStrides {
  long long x, w, y, bias, residual, x_scale, w_scale;
};

/// `first` with all that differs moved on to product `index`.
template <class Config, int alignment>
__device__ __forceinline__ epilogue<Config, alignment> epilogue_of(epilogue<Config, alignment> first,
                                                                   const BatchStrides& strides, long long index) {
  first.y += index * strides.y;
  if (first.bias != nullptr) first.bias += index * strides.bias;
  if constexpr (Config::residual == Residual::add) first.residual += index * strides.residual;
  if constexpr (Config::scaling != Scaling::none) {
    first.x_scale += index * strides.x_scale;
    first.w_scale += index * strides.w_scale;
  }
  return first;
}

}  // namespace kiln::gemm
