#pragma once

#include "common/types.cuh"

namespace kiln {

/// A block of 256 threads a row, in double: with s = sigmoid(gate), dup = dy * gate * s and
/// dgate = dy * up * s * (1 + gate * (1 - s)).
template <typename T>
__global__ __launch_bounds__(256) void swiglu_backward_reference(const T* gate, const T* up, const T* dy, float* dgate,
                                                                 float* dup, long long cols, long long gate_row_stride,
                                                                 long long up_row_stride, long long dy_row_stride,
                                                                 long long dgate_row_stride, long long dup_row_stride) {
  const long long row = blockIdx.x;
  for (long long i = threadIdx.x; i < cols; i += 256) {
    const double value = to_double(gate[row * gate_row_stride + i]);
    const double gradient = to_double(dy[row * dy_row_stride + i]);
    const double slope = 1 / (1 + exp(-value));
    dup[row * dup_row_stride + i] = static_cast<float>(gradient * value * slope);
    dgate[row * dgate_row_stride + i] =
        static_cast<float>(gradient * to_double(up[row * up_row_stride + i]) * slope * (1 + value * (1 - slope)));
  }
}

}  // namespace kiln
