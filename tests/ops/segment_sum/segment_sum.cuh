// Exercises prepared inputs: rows that offsets cut into groups, which [prepare] makes equal, skewed, empty but for each third, or one.
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/types.cuh"

/// Element i says where group i begins; the last is `rows`. One block.
__global__ __launch_bounds__(256) void segment_offsets(int* offsets, long long rows, long long groups,
                                                       unsigned long long seed, int which) {
  const long long longest = static_cast<long long>(seed % static_cast<unsigned long long>(groups));
  for (long long i = threadIdx.x; i <= groups; i += 256) {
    long long begin = rows * i / groups;                     // equal
    if (which == 1) begin = rows * i / groups * i / groups;  // skewed: each group is longer than the one before
    if (which == 2) begin = rows * (i / 3 * 3) / groups;     // empty: two of three groups have no row
    if (which == 3) begin = i <= longest ? 0 : rows;         // one_long
    offsets[i] = static_cast<int>(i == groups ? rows : begin);
  }
}

/// Computes each group whose number is a multiple of `step`; none where that is 0.
__global__ __launch_bounds__(128) void segment_sum_reference(const float* x, const int* offsets, float* y,
                                                             long long cols, int step) {
  if (step == 0 || blockIdx.x % step != 0) return;
  for (long long col = threadIdx.x; col < cols; col += 128) {
    double sum = 0;
    for (long long row = offsets[blockIdx.x]; row < offsets[blockIdx.x + 1]; ++row) sum += x[row * cols + col];
    y[blockIdx.x * cols + col] = static_cast<float>(sum);
  }
}

template <int Threads>
__global__ __launch_bounds__(Threads) void segment_sum(const float* x, const int* offsets, float* y, long long cols,
                                                       kiln::axis_length rows, kiln::axis_length groups) {
  kiln::wait_for_predecessor();
  kiln::launch_dependents();
  if (blockIdx.x >= groups.read()) return;
  const long long end = min(static_cast<long long>(offsets[blockIdx.x + 1]), static_cast<long long>(rows.read()));
  for (long long col = threadIdx.x; col < cols; col += Threads) {
    float sum = 0;
    for (long long row = offsets[blockIdx.x]; row < end; ++row) sum += x[row * cols + col];
    y[blockIdx.x * cols + col] = sum;
  }
}
