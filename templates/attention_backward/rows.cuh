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

/// Facts of one query of one head. Its weights, times weight_scale, are 2^(rate * score - lse2). Its delta is the sum
/// of dout * out over the row, divided by weight_scale.
struct alignas(8) RowFacts {
  float lse2;  // infinite where the query sees no key or no sequence has it, so that weights are 0
  float delta;
};

/// Where things of a query lie that are dense by [planes, heads, queries].
__device__ __forceinline__ long long row_index(int plane, int head, long long query, int heads, int queries) {
  return (static_cast<long long>(plane) * heads + head) * queries + query;
}

/// The swizzle of sums in rows of `dim` floats: returns where the float at `bytes` of a row lies. Groups of eight
/// columns change places within each four, or each two, by the row's number in the tensor. So four neighbouring rows
/// have a column in different banks of shared memory. Where the rows are an odd number of groups, they have so anyway.
template <int dim>
__device__ __forceinline__ unsigned swizzle_sums(unsigned bytes, int row) {
  return dim % 32 == 0   ? bytes ^ static_cast<unsigned>(row & 3) * 32
         : dim % 16 == 0 ? bytes ^ static_cast<unsigned>(row & 2) * 16
                         : bytes;
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

/// grid (ceil_div(planes * queries, 256 / lanes_of_row<value_dim>), heads), block (256). Writes the facts of each row,
/// zeros to its sums of dq if `clears`, and `key_floats` zeros from `key_sums` on. Strides are those of both out and
/// dout.
/// REQUIRES: `key_floats` is a multiple of 4. out, dout and their rows begin at multiples of 16 bytes.
template <typename T, int head_dim, int value_dim, kiln::attention::Layout layout, bool clears>
__global__ void __launch_bounds__(256)
    attention_backward_rows(const __grid_constant__ kiln::attention::HeadRows<const T> out_rows, const T* dout,
                            const __grid_constant__ kiln::attention::LogSums log_sums, const int* query_offsets,
                            const int* key_offsets, unsigned long long* query_report, unsigned long long* key_report,
                            kiln::attention::RowFacts* facts, float* sums, float* key_sums, long long key_floats,
                            int batch, int planes, int queries, int keys, int heads) {
  using namespace kiln;
  using namespace kiln::attention;
  constexpr int lanes = lanes_of_row<value_dim>;
  const HeadRows<const T> out = in_registers(out_rows);
  const LogSums lse = in_registers(log_sums);
  wait_for_predecessor();
  launch_dependents();
  const unsigned number = blockIdx.x * (256 / lanes) + threadIdx.x / lanes;
  const int head = blockIdx.y, lane = static_cast<int>(threadIdx.x) % lanes;
  const int row = static_cast<int>(number % queries), plane = static_cast<int>(number / queries);
  const bool is_in_tensor = plane < planes;
  const bool exists = is_in_tensor && has_row<layout>(query_offsets, batch, row);

  float delta = 0;
  if (exists && lane * 8 < value_dim) {
    const long long at = plane * out.batch_stride + row * out.row_stride + head * out.head_stride + lane * 8;
    const auto a = to_floats<T, 8>(load_packed<8>(out.at + at)), b = to_floats<T, 8>(load_packed<8>(dout + at));
#pragma unroll
    for (int i = 0; i < 8; ++i) delta = fmaf(a.at[i], b.at[i], delta);
  }
  delta = warp_reduce<lanes>(delta, add{});
  if (head == 0)
    OffsetReports{query_report, key_report, queries}.tell<layout>({query_offsets, key_offsets, batch, queries, keys},
                                                                  static_cast<int>(blockIdx.x * 256 + threadIdx.x),
                                                                  static_cast<int>(gridDim.x * 256));
  for (long long i = ((static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x) * 256 + threadIdx.x) * 4;
       i < key_floats; i += static_cast<long long>(gridDim.y) * gridDim.x * 1024)
    *reinterpret_cast<float4*>(key_sums + i) = make_float4(0, 0, 0, 0);
  if (!is_in_tensor) return;
  const long long place = row_index(plane, head, row, heads, queries);
  if (lane == 0) {
    const float of_row = exists ? lse.at[plane * lse.batch_stride + head * lse.head_stride + row] : -infinity();
    facts[place] = {of_row == -infinity() ? infinity() : of_row * log2_e - weight_bits<T>, delta / weight_scale<T>};
  }
  if constexpr (!clears) return;
  for (int i = lane * 4; i < head_dim; i += lanes * 4)
    *reinterpret_cast<float4*>(sums + place * head_dim + i) = make_float4(0, 0, 0, 0);
}

namespace kiln::attention {

/// For the threads of a grid (at least ceil_div(planes * length * dim / 8, 256), ...) of blocks of 256. Makes rows of
/// `head`'s gradient of their sums by [planes, heads, length], which lie in order or as swizzle_sums says.
template <typename T, int dim, Layout layout, bool swizzled>
__device__ __forceinline__ void convert_rows(const float* sums, const HeadRows<T>& gradient, const int* offsets,
                                             int batch, int planes, int length, int heads, int head, float scale) {
  constexpr int chunks = dim / 8;
  const unsigned long long thread = static_cast<unsigned long long>(blockIdx.x) * 256 + threadIdx.x;
  const auto number = static_cast<unsigned>(thread / chunks);
  const int chunk = static_cast<int>(thread % chunks);
  const int row = static_cast<int>(number % length), plane = static_cast<int>(number / length);
  if (plane >= planes || !has_row<layout>(offsets, batch, row)) return;
  const int place = swizzled ? static_cast<int>(swizzle_sums<dim>(chunk * 32, row)) / 32 : chunk;
  const float* const from = sums + row_index(plane, head, row, heads, length) * dim + place * 8;
  const auto low = load<4>(from), high = load<4>(from + 4);
  vec<float, 8> row_of_eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    row_of_eight.at[i] = low.at[i] * scale;
    row_of_eight.at[i + 4] = high.at[i] * scale;
  }
  store_packed<8>(
      gradient.at + plane * gradient.batch_stride + row * gradient.row_stride + head * gradient.head_stride + chunk * 8,
      from_floats<T, 8>(row_of_eight));
}

}  // namespace kiln::attention

/// grid (ceil_div(planes * queries * head_dim / 8, 256), heads), block (256): dq from its sums.
template <typename T, int head_dim, kiln::attention::Layout layout, bool swizzled = false>
__global__ void __launch_bounds__(256)
    attention_backward_convert(const float* sums, kiln::attention::HeadRows<T> dq, const int* query_offsets, int batch,
                               int planes, int queries, int heads, float scale) {
  using namespace kiln;
  wait_for_predecessor();
  launch_dependents();
  attention::convert_rows<T, head_dim, layout, swizzled>(sums, dq, query_offsets, batch, planes, queries, heads,
                                                         static_cast<int>(blockIdx.y), scale);
}

/// grid (ceil_div(planes * keys * max(head_dim, value_dim) / 8, 256), 2 * key_heads), block (256): dk, and dv, from sums, dk's and then
/// dv's, under swizzle_sums.
template <typename T, int head_dim, int value_dim, kiln::attention::Layout layout>
__global__ void __launch_bounds__(256)
    attention_backward_convert_keys(const float* sums, const __grid_constant__ kiln::attention::HeadRows<T> dk_rows,
                                    const __grid_constant__ kiln::attention::HeadRows<T> dv_rows,
                                    const int* key_offsets, int batch, int planes, int keys, int key_heads) {
  using namespace kiln;
  using namespace kiln::attention;
  const HeadRows<T> dk = in_registers(dk_rows), dv = in_registers(dv_rows);
  wait_for_predecessor();
  launch_dependents();
  const int head = static_cast<int>(blockIdx.y);
  if (head < key_heads) {
    convert_rows<T, head_dim, layout, true>(sums, dk, key_offsets, batch, planes, keys, key_heads, head, 1.0f);
  } else {
    convert_rows<T, value_dim, layout, true>(sums + row_index(planes, 0, 0, key_heads, keys) * head_dim, dv,
                                             key_offsets, batch, planes, keys, key_heads, head - key_heads, 1.0f);
  }
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
