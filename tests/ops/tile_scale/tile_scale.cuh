// Exercises what a manifest can say of the tensor copy engine: y = x * scale, a tile a block.
#include "common/types.cuh"

template <typename T>
__global__ __launch_bounds__(128) void tile_scale_reference(const T* x, float* y, long long cols,
                                                            long long x_row_stride, float scale) {
  for (long long col = threadIdx.x; col < cols; col += 128) {
    y[blockIdx.x * cols + col] = kiln::to_float(x[blockIdx.x * x_row_stride + col]) * scale;
  }
}

template <typename T>
__global__ __launch_bounds__(128) void tile_scale_plain(const T* x, T* y, long long rows, long long cols,
                                                        long long x_row_stride, float scale) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    for (long long col = threadIdx.x; col < cols; col += 128) {
      y[row * cols + col] = kiln::from_float<T>(kiln::to_float(x[row * x_row_stride + col]) * scale);
    }
  }
}

/// One barrier, one box, rows and columns past the end filled with zeros by the engine and not stored.
template <typename T, int TileRows, int TileCols>
__global__ __launch_bounds__(128) void tile_scale_tma(const __grid_constant__ kiln::tensor_map x, T* y, long long rows,
                                                      long long cols, float scale) {
  __shared__ alignas(128) T tile[TileRows * TileCols];
  __shared__ alignas(8) unsigned long long barrier;
  const unsigned barrier_address = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  const unsigned tile_address = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_address) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int first_col = static_cast<int>(blockIdx.x) * TileCols;
  unsigned phase = 0;
  for (long long row_tile = blockIdx.y; row_tile * TileRows < rows; row_tile += gridDim.y, phase ^= 1u) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier_address),
                   "r"(static_cast<unsigned>(sizeof tile))
                   : "memory");
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
              "r"(tile_address),
          "l"(&x), "r"(first_col), "r"(static_cast<int>(row_tile * TileRows)), "r"(barrier_address)
          : "memory");
    }
    asm volatile(
        "{\n.reg .pred done;\nwait_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra wait_%=;\n}" ::
            "r"(barrier_address),
        "r"(phase)
        : "memory");
    for (int i = threadIdx.x; i < TileRows * TileCols; i += 128) {
      const long long row = row_tile * TileRows + i / TileCols;
      const long long col = first_col + i % TileCols;
      if (row < rows && col < cols) y[row * cols + col] = kiln::from_float<T>(kiln::to_float(tile[i]) * scale);
    }
    __syncthreads();
  }
}
