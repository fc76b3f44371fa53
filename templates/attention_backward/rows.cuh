// What attention_backward takes and leaves row by row, before and after its products.
#pragma once

#include "common/attention/offset_reports.cuh"
#include "common/attention/problem.cuh"
#include "common/attention/softmax_rows.cuh"
#include "common/dependent_launch.cuh"
#include "common/reduce.cuh"
#include "common/vector.cuh"

namespace kiln::attention {

/// What weights are multiplied by before they are rounded: 1 / 16384 is the least that f16 holds in full.
template <typename T>
inline constexpr int weight_bits = is_same<T, f16> ? 12 : 0;
template <typename T>
inline constexpr float weight_scale = is_same<T, f16> ? 4096.0f : 1.0f;

/// Of one query of one head: its weights, times weight_scale, are 2^(rate * score - lse2). delta is the sum of dout * out over the row,
/// divided by weight_scale.
struct alignas(8) RowFacts {
  float lse2;  // infinite where the query sees no key or no sequence has it, so that weights are 0
  float delta;
};

/// Where things of a query lie that are dense by [planes, heads, queries].
__device__ __forceinline__ long long row_index(int plane, int head, long long query, int heads, int queries) {
  return (static_cast<long long>(plane) * heads + head) * queries + query;
}

/// The swizzle of dq's sums: returns where the float at `bytes` of a row lies. Groups of eight columns change places within each four by the
/// row's number in the tensor, so that neighbouring rows have a column in different banks of shared memory.
__device__ __forceinline__ unsigned swizzle_sums(unsigned bytes, int row) {
  return bytes ^ static_cast<unsigned>(row & 3) * 32;
}

/// Rows that sequences have. Dense: all.
template <Layout layout>
__device__ __forceinline__ bool has_row(const int* offsets, int batch, int row) {
  return layout == Layout::dense || (row >= offsets[0] && row < offsets[batch]);
}

/// Lanes that share a row of `dim` elements, 8 each.
template <int dim>
inline constexpr int lanes_of_row = dim <= 8     ? 1
                                    : dim <= 16  ? 2
                                    : dim <= 32  ? 4
                                    : dim <= 64  ? 8
                                    : dim <= 128 ? 16
                                                 : 32;

}  // namespace kiln::attention

/// grid (ceil_div(planes * queries, 256 / lanes_of_row<value_dim>), heads), block (256). Writes the facts of each row, and zeros to its
/// sums of dq if `clears`. out and dout begin at multiples of 16 bytes, as do their rows.
template <typename T, int head_dim, int value_dim, kiln::attention::Layout layout, bool clears>
__global__ void __launch_bounds__(256)
    attention_backward_rows(const T* out, const T* dout, const float* lse, const int* query_offsets,
                            const int* key_offsets, unsigned long long* query_report, unsigned long long* key_report,
                            kiln::attention::RowFacts* facts, float* sums, int batch, int planes, int queries, int keys,
                            int heads, long long out_batch_stride, long long out_row_stride, long long out_head_stride,
                            long long lse_batch_stride, long long lse_head_stride) {
  using namespace kiln;
  using namespace kiln::attention;
  constexpr int lanes = lanes_of_row<value_dim>;
  wait_for_predecessor();
  launch_dependents();
  const unsigned number = blockIdx.x * (256 / lanes) + threadIdx.x / lanes;
  const int head = blockIdx.y, lane = static_cast<int>(threadIdx.x) % lanes;
  const int row = static_cast<int>(number % queries), plane = static_cast<int>(number / queries);
  const bool is_in_tensor = plane < planes;
  const bool exists = is_in_tensor && has_row<layout>(query_offsets, batch, row);

  float delta = 0;
  if (exists && lane * 8 < value_dim) {
    const long long at = plane * out_batch_stride + row * out_row_stride + head * out_head_stride + lane * 8;
    const auto a = to_floats<T, 8>(load_packed<8>(out + at)), b = to_floats<T, 8>(load_packed<8>(dout + at));
#pragma unroll
    for (int i = 0; i < 8; ++i) delta = fmaf(a.at[i], b.at[i], delta);
  }
  delta = warp_reduce<lanes>(delta, add{});
  if (head == 0)
    OffsetReports{query_report, key_report, queries}.tell<layout>({query_offsets, key_offsets, batch, queries, keys},
                                                                  static_cast<int>(blockIdx.x * 256 + threadIdx.x),
                                                                  static_cast<int>(gridDim.x * 256));
  if (!is_in_tensor) return;
  const long long place = row_index(plane, head, row, heads, queries);
  if (lane == 0) {
    const float of_row = exists ? lse[plane * lse_batch_stride + head * lse_head_stride + row] : -infinity();
    facts[place] = {of_row == -infinity() ? infinity() : of_row * log2_e - weight_bits<T>, delta / weight_scale<T>};
  }
  if constexpr (!clears) return;
  for (int i = lane * 4; i < head_dim; i += lanes * 4)
    *reinterpret_cast<float4*>(sums + place * head_dim + i) = make_float4(0, 0, 0, 0);
}

/// grid (ceil_div(planes * queries * head_dim / 8, 256), heads), block (256): dq of each row from its sums, which lie in
/// order or as swizzle_sums says. Strides are dq's.
template <typename T, int head_dim, kiln::attention::Layout layout, bool swizzled = false>
__global__ void __launch_bounds__(256)
    attention_backward_convert(const float* sums, T* dq, const int* query_offsets, int batch, int planes, int queries,
                               int heads, long long q_batch_stride, long long q_row_stride, long long q_head_stride,
                               float scale) {
  using namespace kiln;
  using namespace kiln::attention;
  constexpr int chunks = head_dim / 8;
  wait_for_predecessor();
  launch_dependents();
  const unsigned long long thread = static_cast<unsigned long long>(blockIdx.x) * 256 + threadIdx.x;
  const auto number = static_cast<unsigned>(thread / chunks);
  const int head = blockIdx.y, chunk = static_cast<int>(thread % chunks);
  const int row = static_cast<int>(number % queries), plane = static_cast<int>(number / queries);
  if (plane >= planes || !has_row<layout>(query_offsets, batch, row)) return;
  const int place = swizzled ? static_cast<int>(swizzle_sums(chunk * 32, row)) / 32 : chunk;
  const float* const from = sums + row_index(plane, head, row, heads, queries) * head_dim + place * 8;
  const auto low = load<4>(from), high = load<4>(from + 4);
  vec<float, 8> row_of_eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    row_of_eight.at[i] = low.at[i] * scale;
    row_of_eight.at[i + 4] = high.at[i] * scale;
  }
  store_packed<8>(dq + plane * q_batch_stride + row * q_row_stride + head * q_head_stride + chunk * 8,
                  from_floats<T, 8>(row_of_eight));
}

/// grid (heads), block (threads): dsink = -sum over all rows of exp(sink - lse) * delta, always in the same order. dsink may be null.
template <int threads>
__global__ void __launch_bounds__(threads)
    attention_backward_sinks(const kiln::attention::RowFacts* facts, const float* sinks, float* dsink, int planes,
                             int queries, int heads) {
  using namespace kiln;
  using namespace kiln::attention;
  __shared__ float scratch[threads / 32];
  wait_for_predecessor();
  launch_dependents();
  if (dsink == nullptr) return;
  const int head = blockIdx.x;
  const float sink = sinks[head] * log2_e;
  float sum = 0;
  for (int plane = 0; plane < planes; ++plane) {
    const RowFacts* const of_head = facts + row_index(plane, head, 0, heads, queries);
    for (int row = threadIdx.x; row < queries; row += threads)
      sum = fmaf(exp2_approx(sink - of_head[row].lse2), -of_head[row].delta, sum);
  }
  sum = block_reduce<threads / 32>(warp_reduce(sum, add{}), 0.0f, add{}, scratch);
  if (threadIdx.x == 0) dsink[head] = sum;
}
