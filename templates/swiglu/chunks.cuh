// Chunks of gate and up to chunks of y, all of a thread's loads first.
#pragma once

#include "common/chunks.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/quantise.cuh"
#include "common/sigmoid.cuh"

namespace kiln {

/// Quantised by blocks, chunks stand in whole blocks; else they follow gate's alignment. `mode` names which of y and
/// y_quantised, and of the scales, are used.
template <typename T, quantise_mode mode, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void swiglu_chunks(const T* gate, const T* up, T* y, e4m3* y_quantised,
                                                         const float* y_scale, float* y_block_scales,
                                                         axis_length length, long long columns,
                                                         long long gate_row_stride, long long up_row_stride,
                                                         long long y_row_stride, long long block_scale_row_stride,
                                                         long long block_scale_stride) {
  using tiles = chunk_tiles<N, Threads, Lanes, Items>;
  wait_for_predecessor();
  const int rows = length.read(), cols = static_cast<int>(columns);
  const tiles work = mode == quantise_mode::block ? tiles::in_groups(quantise_block, rows, cols)
                                                  : tiles::of(gate, gate_row_stride, rows, cols);
  if (blockIdx.x >= work.blocks()) return;
  work.visit(blockIdx.x, [&](const chunk_share<N, Lanes, Items>& share) {
    chunk_pieces<T, N> gates[Items], ups[Items];
    share.load(gates, gate, gate_row_stride);
    share.load(ups, up, up_row_stride);
    [[maybe_unused]] const float inverse = mode == quantise_mode::tensor ? 1.0f / *y_scale : 1.0f;
    launch_dependents();
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const vec<T, N> g = gates[item].values(), u = ups[item].values();
      vec<float, N> results;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float value = to_float(g.at[i]);
        results.at[i] = value * sigmoid(value) * to_float(u.at[i]);
      }
      if constexpr (mode == quantise_mode::none) {
        share.store(item, y, y_row_stride, chunk_pieces<T, N>::of([&](int i) { return from_float<T>(results.at[i]); }));
      } else if constexpr (mode == quantise_mode::tensor) {
        share.store(item, y_quantised, y_row_stride, chunk_pieces<e4m3, N>{quantise_packed(results, inverse)});
      } else {
        const block_scale scale = shared_scale(results);
        share.store(item, y_quantised, y_row_stride, chunk_pieces<e4m3, N>{quantise_packed(results, scale.inverse)});
        const int column = share.column(item);
        if (column % quantise_block == 0 && column < share.cols) {
          y_block_scales[share.row * block_scale_row_stride + column / quantise_block * block_scale_stride] =
              scale.scale;
        }
      }
    }
  });
}

}  // namespace kiln
