#pragma once

#include "common/types.cuh"
#include "heads.cuh"

namespace kiln {

/// A block of 256 threads a token, in double.
template <typename T, typename Index, Layout layout, Direction direction>
__global__ __launch_bounds__(256) void rotary_reference(const T* x, const float* cos, const float* sin,
                                                        const Index* positions, float* y, long long heads,
                                                        long long dim, long long rotary_dim, long long x_token_stride,
                                                        long long x_head_stride, long long y_token_stride,
                                                        long long y_head_stride, long long table_rows,
                                                        long long table_row_stride) {
  const long long token = blockIdx.x, half = rotary_dim / 2;
  const long long table = row_in_table<long long>(positions[token], table_rows - 1, nullptr) * table_row_stride;
  for (long long at = threadIdx.x; at < heads * dim; at += 256) {
    const long long head = at / dim, i = at % dim;
    const T* source = x + token * x_token_stride + head * x_head_stride;
    double result = to_double(source[i]);
    if (i < rotary_dim) {
      const long long pair = layout == Layout::half ? i % half : i / 2;
      const bool second = layout == Layout::half ? i >= half : i % 2 == 1;
      const long long other = layout == Layout::half ? (second ? i - half : i + half) : (second ? i - 1 : i + 1);
      const double sine =
          direction == Direction::forward ? to_double(sin[table + pair]) : -to_double(sin[table + pair]);
      const double turned = to_double(source[other]) * sine;
      result = result * to_double(cos[table + pair]) + (second ? turned : -turned);
    }
    y[token * y_token_stride + head * y_head_stride + i] = static_cast<float>(result);
  }
}

}  // namespace kiln
