// A block a row: it stores the row to every peer as packets, adds up what arrives, and normalises the sum in its registers.
#pragma once

#include "common/norm_forward.cuh"
#include "common/team/packets.cuh"

namespace kiln {

/// What the launch gives, dense rows of `cols` elements.
template <typename T>
struct all_reduce_norm_tensors {
  const T *residual, *weight;
  const float* y_scale;
  T *sum, *y;
  e4m3* y_quantised;
  float* y_block_scales;
  long long block_scale_row_stride, block_scale_stride;
};

/// Word `word` of a row, which has 16 / sizeof(T) elements, of either output.
template <quantise_mode Quantise, typename T>
__device__ __forceinline__ void store_word(const all_reduce_norm_tensors<T>& to, int word,
                                           const vec<float, 16 / sizeof(T)>& values, float inverse) {
  constexpr int n = 16 / sizeof(T);
  if constexpr (Quantise == quantise_mode::none) {
    store_packed<n>(to.y + static_cast<long long>(word) * n, from_floats<T, n>(values));
  } else {
    store_packed<n>(to.y_quantised + static_cast<long long>(word) * n, quantise_packed(values, inverse));
  }
}

/// The thread's words of a row whose sum over the ranks did not come: NaN in all outputs.
template <residual_mode Residual, quantise_mode Quantise, int Words, typename T, typename Sum>
__device__ __forceinline__ void poison_row(const all_reduce_norm_tensors<T>& to, const Sum& sum, int row, int first) {
  constexpr int n = 16 / sizeof(T);
  vec<float, n> nan;
#pragma unroll
  for (int j = 0; j < n; ++j) nan.at[j] = __uint_as_float(0x7fffffffu);
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    if (!sum.has(i)) continue;
    if constexpr (Residual == residual_mode::add) reinterpret_cast<uint4*>(to.sum)[sum.index(i)] = team::poison();
    store_word<Quantise>(to, sum.index(i), nan, 1.0f);
    const int column = (sum.index(i) - first) * n;
    if (Quantise == quantise_mode::block && column % quantise_block == 0)
      to.y_block_scales[row * to.block_scale_row_stride + column / quantise_block * to.block_scale_stride] = nan.at[0];
  }
}

/// x in words of 16 bytes. A block has threads for a whole row, of `row_words` words.
template <typename T, int World, int Threads, int Words, residual_mode Residual, quantise_mode Quantise>
__global__ __launch_bounds__(Threads) void all_reduce_norm_fused(
    const uint4* x, const T* residual, const T* weight, const float* y_scale, T* sum_out, T* y, e4m3* y_quantised,
    float* y_block_scales, axis_length rows, int row_words, long long block_scale_row_stride,
    long long block_scale_stride, float epsilon, const __grid_constant__ team::Team team) {
  using Sum = team::PacketSum<T, World, Threads, Words>;
  constexpr int n = 16 / sizeof(T);
  __shared__ typename Sum::storage storage;
  __shared__ float scratch[row_sum_scratch<Threads>];
  const all_reduce_norm_tensors<T> tensors{
      residual, weight, y_scale, sum_out, y, y_quantised, y_block_scales, block_scale_row_stride, block_scale_stride};
  const int row = static_cast<int>(blockIdx.x), first = row * row_words;
  Sum sum(team, storage, x, rows, row_words, first, row_words);
  sum.push();

  uint4 weights[Words], residuals[Words];  // asked for while the sums are under way
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    weights[i] = residuals[i] = make_uint4(0, 0, 0, 0);
    if (!sum.has(i)) continue;
    weights[i] = reinterpret_cast<const uint4*>(weight)[sum.index(i) - first];
    if constexpr (Residual == residual_mode::add) residuals[i] = reinterpret_cast<const uint4*>(residual)[sum.index(i)];
  }
  const float given = Quantise == quantise_mode::tensor ? reciprocal(*y_scale) : 0.0f;
  uint4 sums[Words];
  if (!sum.sum(sums)) {
    poison_row<Residual, Quantise, Words>(tensors, sum, row, first);
    return sum.end();
  }
  if (row >= sum.rows()) return sum.end();  // a row of the peers' alone

  vec<float, n> values[Words];
  vec<float, 4> squares{};
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    values[i] = to_floats<T, n>(sums[i]);
    if constexpr (Residual == residual_mode::add) {
      const vec<float, n> others = to_floats<T, n>(residuals[i]);
#pragma unroll
      for (int j = 0; j < n; ++j) values[i].at[j] += others.at[j];
      sums[i] = from_floats<T, n>(values[i]);
      values[i] = to_floats<T, n>(sums[i]);
      if (sum.has(i)) reinterpret_cast<uint4*>(sum_out)[sum.index(i)] = sums[i];
    }
#pragma unroll
    for (int j = 0; j < n; ++j) squares.at[j % 4] += values[i].at[j] * values[i].at[j];
  }
  row_sum<Threads> of_row{scratch};
  const float scale = rsqrtf(of_row(squares.reduce(add{})) / static_cast<float>(row_words * n) + epsilon);
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    const vec<float, n> factors = to_floats<T, n>(weights[i]);
#pragma unroll
    for (int j = 0; j < n; ++j) values[i].at[j] *= scale * factors.at[j];
    float inverse = given;
    if constexpr (Quantise == quantise_mode::block) {  // by all lanes
      const block_scale own = shared_scale(values[i]);
      const int column = (sum.index(i) - first) * n;
      if (sum.has(i) && column % quantise_block == 0)
        y_block_scales[row * block_scale_row_stride + column / quantise_block * block_scale_stride] = own.scale;
      inverse = own.inverse;
    }
    if (sum.has(i)) store_word<Quantise>(tensors, sum.index(i), values[i], inverse);
  }
  sum.end();
}

}  // namespace kiln
