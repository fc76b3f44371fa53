// Chunks of x to chunks of e4m3, all of a thread's loads first. Before it, where the scale is x's own, another kernel
// finds the largest magnitude of x.
#pragma once

#include "common/chunks.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/quantise.cuh"

namespace kiln {

/// The words of the choice `scaling`, as op.toml spells them.
enum class Scaling { tensor, block, dynamic };

template <typename T, int N>
__device__ __forceinline__ vec<float, N> as_floats(const chunk_pieces<T, N>& chunk) {
  return chunk.values().template map<float>([](T value) { return to_float(value); });
}

/// The scale of all of x, by the block that ends last. `partial` holds a float for each block, and `ended`, zero before and after,
/// counts the blocks that have ended. A maximum does not depend on the order, so that the result is always the same.
template <typename T, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void quantise_find_scale(const T* x, float* scale, float* partial,
                                                               unsigned* ended, axis_length length, long long columns,
                                                               long long x_row_stride) {
  constexpr int warps = Threads / 32;
  __shared__ float scratch[2][warps];
  __shared__ bool last;
  wait_for_predecessor();
  launch_dependents();
  const auto work =
      chunk_tiles<N, Threads, Lanes, Items>::of(x, x_row_stride, length.read(), static_cast<int>(columns));
  const unsigned blocks = work.blocks();
  float largest = 0;
  for (unsigned block = blockIdx.x; block < blocks; block += gridDim.x) {
    work.visit(block, [&](const chunk_share<N, Lanes, Items>& share) {
      chunk_pieces<T, N> chunks[Items];
      share.load(chunks, x, x_row_stride);
#pragma unroll
      for (int item = 0; item < Items; ++item) largest = fmaxf(largest, largest_magnitude(as_floats(chunks[item])));
    });
  }
  largest = block_reduce<warps>(warp_reduce(largest, maximum{}), 0.0f, maximum{}, scratch[0]);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = largest;
    __threadfence();
    last = atomicInc(ended, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  largest = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += Threads)
    largest = fmaxf(largest, *static_cast<const volatile float*>(&partial[block]));
  largest = block_reduce<warps>(warp_reduce(largest, maximum{}), 0.0f, maximum{}, scratch[1]);
  if (threadIdx.x == 0) *scale = scale_of(largest).scale;
}

/// `scale`: given, or what quantise_find_scale found. Under a scale of x's own, blocks walk x from its end, which that pass
/// read last and left in L2.
template <typename T, Scaling scaling, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void quantise_chunks(const T* x, e4m3* y, const float* scale, float* block_scales,
                                                           axis_length length, long long columns,
                                                           long long x_row_stride, long long y_row_stride,
                                                           long long block_scale_row_stride,
                                                           long long block_scale_stride) {
  using tiles = chunk_tiles<N, Threads, Lanes, Items>;
  wait_for_predecessor();
  const unsigned block = scaling == Scaling::dynamic ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int rows = length.read(), cols = static_cast<int>(columns);
  const tiles work =
      scaling == Scaling::block ? tiles::in_groups(quantise_block, rows, cols) : tiles::of(x, x_row_stride, rows, cols);
  if (block >= work.blocks()) return;
  work.visit(block, [&](const chunk_share<N, Lanes, Items>& share) {
    chunk_pieces<T, N> chunks[Items];
    share.load(chunks, x, x_row_stride);
    [[maybe_unused]] const float inverse = scaling == Scaling::block ? 1.0f : 1.0f / *scale;
    launch_dependents();
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const vec<float, N> values = as_floats(chunks[item]);
      if constexpr (scaling == Scaling::block) {
        const block_scale own = shared_scale(values);
        share.store(item, y, y_row_stride, chunk_pieces<e4m3, N>{quantise_packed(values, own.inverse)});
        const int column = share.column(item);
        if (column % quantise_block == 0 && column < share.cols) {
          block_scales[share.row * block_scale_row_stride + column / quantise_block * block_scale_stride] = own.scale;
        }
      } else {
        share.store(item, y, y_row_stride, chunk_pieces<e4m3, N>{quantise_packed(values, inverse)});
      }
    }
  });
}

}  // namespace kiln
