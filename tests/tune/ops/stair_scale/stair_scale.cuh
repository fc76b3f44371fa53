// y = x * factor, in one block.
#include "common/types.cuh"

template <typename T>
__global__ __launch_bounds__(128) void stair_scale_reference(const T* x, float* y, long long cols, float factor) {
  for (long long i = threadIdx.x; i < cols; i += 128)
    y[blockIdx.x * cols + i] = kiln::to_float(x[blockIdx.x * cols + i]) * factor;
}

template <typename T, int Tile>
__global__ __launch_bounds__(128) void stair_scale(const T* x, T* y, long long rows, long long cols, float factor) {
  for (long long row = 0; row < rows; row += Tile)
    for (long long i = threadIdx.x; i < Tile * cols && row * cols + i < rows * cols; i += 128)
      y[row * cols + i] = kiln::from_float<T>(kiln::to_float(x[row * cols + i]) * factor);
}
