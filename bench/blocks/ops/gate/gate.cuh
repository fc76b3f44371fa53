// y = x + gate * out and its backward pass, which sums dy * out over rows: first those of each part, then the parts.
#include "common/types.cuh"
#include "common/vector.cuh"

enum class Direction { forward, backward };

/// A thread a column.
template <typename T, Direction Way>
__global__ __launch_bounds__(32) void gate_reference(const T* gate, const T* out, const T* x, float* y, const T* dy,
                                                     float* dout, float* dgate, long long rows, long long cols) {
  const long long col = blockIdx.x * 32LL + threadIdx.x;
  if (col >= cols) return;
  const double factor = kiln::to_double(gate[col]);
  double sum = 0;
  for (long long row = 0; row < rows; ++row) {
    const long long at = row * cols + col;
    if constexpr (Way == Direction::forward) {
      y[at] = static_cast<float>(kiln::to_double(x[at]) + factor * kiln::to_double(out[at]));
    } else {
      const double gradient = kiln::to_double(dy[at]);
      dout[at] = static_cast<float>(factor * gradient);
      sum += gradient * kiln::to_double(out[at]);
    }
  }
  if constexpr (Way == Direction::backward) dgate[col] = static_cast<float>(sum);
}

template <typename T, Direction Way, int Threads>
__global__ __launch_bounds__(Threads) void gate(const T* gate, const T* out, const T* x, T* y, const T* dy, T* dout,
                                                float* sums, long long rows, long long cols) {
  constexpr int width = 8;
  const long long col = (blockIdx.x * static_cast<long long>(Threads) + threadIdx.x) * width;
  if (col >= cols) return;
  const auto factors = kiln::load<width>(gate + col);
  kiln::vec<float, width> sum = {};
#pragma unroll 4
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
    const long long at = row * cols + col;
    const auto others = kiln::load<width>((Way == Direction::forward ? x : dy) + at);
    const auto branch = kiln::load<width>(out + at);
    kiln::vec<T, width> made;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float factor = kiln::to_float(factors.at[i]), other = kiln::to_float(others.at[i]);
      const float value = kiln::to_float(branch.at[i]);
      made.at[i] = kiln::from_float<T>(Way == Direction::forward ? other + factor * value : factor * other);
      sum.at[i] += other * value;
    }
    kiln::store<width>((Way == Direction::forward ? y : dout) + at, made);
  }
  if constexpr (Way == Direction::backward) {
#pragma unroll
    for (int i = 0; i < width; ++i) sums[blockIdx.y * cols + col + i] = sum.at[i];
  }
}

/// 32 columns a block, an eighth of the parts a warp.
template <typename T>
__global__ __launch_bounds__(256) void gate_sums(const float* sums, T* dgate, int parts, long long cols) {
  __shared__ float of_warps[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long col = blockIdx.x * 32LL + lane;
  float sum = 0;
  if (col < cols) {
    for (int part = warp; part < parts; part += 8) sum += sums[part * cols + col];
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || col >= cols) return;
  for (int i = 1; i < 8; ++i) sum += of_warps[i][lane];
  dgate[col] = kiln::from_float<T>(sum);
}
