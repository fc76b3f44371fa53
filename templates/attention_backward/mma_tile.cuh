// What a block of attention_backward_mma is compiled for, its shared memory, and its products.
#pragma once

#include "common/attention/row_tile.cuh"
#include "scores.cuh"

namespace kiln::attention {

/// cp.async of 8 bytes; zeros when `read` is false.
__device__ __forceinline__ void cp_async_8(unsigned to_shared, const void* from_global, bool read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to_shared), "l"(from_global), "r"(read ? 8 : 0)
               : "memory");
}

/// Adds two neighbours to sums in global memory, in no order that is known.
__device__ __forceinline__ void add_pair(float* to, float first, float second) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first), "f"(second) : "memory");
#else
  atomicAdd(to, first);
  atomicAdd(to + 1, second);
#endif
}

/// tile_n keys, 16 for each of tile_n / 16 groups of warps, by tile_m queries. The warps of a group share the queries out, and then the
/// columns of dk and dv.
template <typename Form_, int tile_m_, int tile_n_, int warps_, int stages_, bool sums_dq_>
struct BackwardMma {
  using Form = Form_;
  using T = typename Form::T;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, warps = warps_, stages = stages_, threads = warps * 32;
  static constexpr bool sums_dq = sums_dq_;  // else another kernel computes dq
  static constexpr int key_groups = tile_n / 16, splits = warps / key_groups, own_queries = tile_m / splits;
  static_assert(tile_n % 16 == 0 && warps % key_groups == 0 && own_queries % 16 == 0 && tile_m <= threads);

  using Key = RowTile<Form::head_dim, tile_n>;
  using Value = RowTile<Form::value_dim, tile_n>;
  using Query = RowTile<Form::head_dim, tile_m>;
  using Gradient = RowTile<Form::value_dim, tile_m>;  // of out
  using Weights = RowTile<tile_m, tile_n>;            // or their gradients
  static constexpr bool shares_weights = splits > 1;

  static constexpr int value = Key::bytes, stage = value + Value::bytes,
                       stage_bytes = Query::bytes + Gradient::bytes + tile_m * static_cast<int>(sizeof(RowFacts)),
                       changes = stage + stages * stage_bytes,
                       weights = changes + (shares_weights || sums_dq ? Weights::bytes : 0),
                       bytes = weights + (shares_weights ? Weights::bytes : 0);

  /// Units of 16 columns that a warp has of dk or dv.
  template <int dim>
  static constexpr int own_units = ((dim + 15) / 16 + splits - 1) / splits;
};

/// products = a's 16 rows from `a_row` on times b's rows from `b_row` on, over all columns of both.
template <typename T, typename A, typename B, int count>
__device__ __forceinline__ void multiply_rows(float (&products)[count], unsigned a_tile, int a_row, unsigned b_tile,
                                              int b_row) {
  static_assert(A::k_steps == B::k_steps);
#pragma unroll
  for (int i = 0; i < count; ++i) products[i] = 0;
#pragma unroll
  for (int step = 0; step < A::k_steps; ++step) {
    unsigned a[4], b[4];
    A::load_a(a, a_tile, a_row, step);
#pragma unroll
    for (int i = 0; i < count / 8; ++i) {
      B::load_b(b, b_tile, b_row + i * 16, step);
      multiply<T>(products, i, a, b);
    }
  }
}

/// sums += a times 16 rows of b from `row` on, in the columns of units from `first_unit` on; `checked`: of those that b has.
template <typename T, typename B, bool checked, int count>
__device__ __forceinline__ void add_product(float (&sums)[count], const unsigned (&a)[4], unsigned b_tile, int row,
                                            int first_unit) {
#pragma unroll
  for (int unit = 0; unit < count / 8; ++unit) {
    if (checked && first_unit + unit >= B::k_steps) break;
    unsigned b[4];
    B::load_b_trans(b, b_tile, row, first_unit + unit);
    multiply<T>(sums, unit, a, b);
  }
}

/// Rounds sums of two rows, 8 apart, and stores them: columns of units of 16 from `first_unit` on, as far as `dim` goes.
template <typename T, int dim, int count>
__device__ __forceinline__ void store_units(T* to, long long row_stride, const float (&sums)[count], float factor,
                                            int first_unit, int row, int rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int chunk = 0; chunk < count / 4; ++chunk) {
      const int column = (first_unit * 2 + chunk) * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      if (row + 8 * half < rows && column < dim)
        *reinterpret_cast<unsigned*>(to + (row + 8 * half) * row_stride + column) =
            cvt_rn_x2<T>(sums[4 * chunk + 2 * half] * factor, sums[4 * chunk + 2 * half + 1] * factor);
    }
  }
}

}  // namespace kiln::attention
