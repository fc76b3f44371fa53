#include "common/types.cuh"

/// y[token, head, :] = x[token, head, :] * scale, a head of a token a block. `squares` may be null.
template <typename T, typename Out>
__device__ void scale_head(const T* x, Out* y, long long heads, long long dim, long long token_stride, float scale,
                           float* squares) {
  const long long token = blockIdx.x, head = blockIdx.y;
  const T* from = x + token * token_stride + head * dim;
  Out* to = y + (token * heads + head) * dim;
  for (long long i = threadIdx.x; i < dim; i += blockDim.x)
    to[i] = kiln::from_float<Out>(kiln::to_float(from[i]) * scale);
  if (squares == nullptr || threadIdx.x != 0) return;
  float sum = 0;
  for (long long i = 0; i < dim; ++i) sum += kiln::to_float(from[i]) * scale * kiln::to_float(from[i]) * scale;
  squares[token * heads + head] = sum;
}

template <typename T>
__global__ __launch_bounds__(32) void head_scale_reference(const T* x, float* y, long long tokens, long long heads,
                                                           long long dim, long long token_stride, float scale,
                                                           float* squares) {
  scale_head(x, y, heads, dim, token_stride, scale, squares);
}

template <typename T>
__global__ __launch_bounds__(32) void head_scale_plain(const T* x, T* y, long long tokens, long long heads,
                                                       long long dim, long long token_stride, float scale,
                                                       float* squares) {
  scale_head(x, y, heads, dim, token_stride, scale, squares);
}

template <typename T>
__global__ __launch_bounds__(32) void head_scale_careless(const T* x, T* y, long long tokens, long long heads,
                                                          long long dim, long long token_stride, float scale,
                                                          float* squares) {
  if (squares != nullptr) scale_head(x, y, heads, dim, token_stride, scale, squares);
}

/// `Tile` tokens of the heads of one group a block. Tokens past the end are filled with zeros by the engine and not stored.
template <typename T, int Tile, int Heads, int Dim>
__global__ __launch_bounds__(128) void head_scale_packed(const __grid_constant__ kiln::tensor_map x, T* y,
                                                         long long tokens, long long heads, long long dim, float scale,
                                                         float* squares) {
  __shared__ alignas(128) T tile[Tile * Heads * Dim];
  __shared__ alignas(8) unsigned long long barrier;
  const unsigned barrier_address = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  const unsigned tile_address = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_address) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * Tile, group = static_cast<int>(blockIdx.y);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier_address),
                 "r"(static_cast<unsigned>(sizeof tile))
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
            "r"(tile_address),
        "l"(&x), "r"(0), "r"(0), "r"(group), "r"(first), "r"(barrier_address)
        : "memory");
  }
  asm volatile(
      "{\n.reg .pred done;\nwait_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra wait_%=;\n}" ::
          "r"(barrier_address)
      : "memory");
  for (int i = threadIdx.x; i < Tile * Heads * Dim; i += 128) {
    const long long token = first + i / (Heads * Dim);
    if (token < tokens)
      y[(token * heads + group * Heads) * dim + i % (Heads * Dim)] =
          kiln::from_float<T>(kiln::to_float(tile[i]) * scale);
  }
  if (squares == nullptr) return;
  for (int i = threadIdx.x; i < Tile * Heads; i += 128) {
    float sum = 0;
    for (int d = 0; d < Dim; ++d) {
      const float value = kiln::to_float(tile[i * Dim + d]) * scale;
      sum += value * value;
    }
    const long long token = first + i / Heads;
    if (token < tokens) squares[token * heads + group * Heads + i % Heads] = sum;
  }
}
