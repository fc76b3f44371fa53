// What a library of the vendor's launches: its one kernel takes all of this by value.
#pragma once

#include <cstdint>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

/// By columns: d = alpha a_scale b_scale op(a) op(b) + beta c + bias, where bias runs along the rows of d; `batch` times, at distances in
/// elements.
struct VendorMatmul {
  CUdeviceptr a = 0, b = 0, c = 0, d = 0, bias = 0, a_scale = 0, b_scale = 0;
  CUdeviceptr workspace = 0;
  std::int64_t workspace_bytes = 0;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, ldd = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0, stride_d = 0, stride_bias = 0;
  unsigned type_a = 0, type_b = 0, type_d = 0;  // cudaDataType
  bool transpose_a = false, transpose_b = false, relu = false;
  bool wrong = false;
  float alpha = 1, beta = 0;
  double efficiency = 1;
};

}  // namespace fake_cuda
