// The second pass of attention_decode: planes that several blocks had parts of.
#pragma once

#include "common/dependent_launch.cuh"
#include "results.cuh"

namespace kiln::attention {

/// Slots of a plane's parts, in the order of their keys.
struct Slots {
  long long first, second;  // the others follow `second` in steps of `step`
  int step, count;

  __device__ __forceinline__ long long at(int part) const {
    return part == 0 ? first : second + static_cast<long long>(part - 1) * step;
  }
};

/// One row of a plane, by a block of `warps` warps. The order of all additions goes by the number of parts alone.
template <typename Form, int tile_m, int warps>
__device__ __forceinline__ void combine_row(const Partials<tile_m, Form::value_dim>& partials, const Slots& slots,
                                            int row, const Results<typename Form::T>& results, int sequence,
                                            const PlaneRows::At& at) {
  constexpr int columns = 4, chunks = Form::value_dim / columns, lane_chunks = (chunks + 31) / 32;
  __shared__ float of_warps[warps][Form::value_dim];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float top = -infinity(), sum = 0;
  for (int part = lane; part < slots.count; part += 32)
    top = fmaxf(top, partials.state_at(slots.at(part), row).largest);
  top = warp_reduce(top, maximum{});
  for (int part = lane; part < slots.count; part += 32) {
    const RowState state = partials.state_at(slots.at(part), row);
    sum += state.factor(top) * state.sum;
  }
  sum = warp_reduce(sum, add{});

  vec<float, columns> total[lane_chunks] = {};
#pragma unroll 4
  for (int part = warp; part < slots.count; part += warps) {
    const long long slot = slots.at(part);
    const float factor = partials.state_at(slot, row).factor(top);
#pragma unroll
    for (int i = 0; i < lane_chunks; ++i) {
      if (i * 32 + lane >= chunks) continue;
      const auto from = load<columns>(partials.sums_at(slot, row) + (i * 32 + lane) * columns);
#pragma unroll
      for (int j = 0; j < columns; ++j) total[i].at[j] += factor * from.at[j];
    }
  }
#pragma unroll
  for (int i = 0; i < lane_chunks; ++i)
    if (i * 32 + lane < chunks) store(of_warps[warp] + (i * 32 + lane) * columns, total[i]);
  __syncthreads();

  const RowEnd end = results.template finish<Form::sinks>({top, sum}, sequence, at, threadIdx.x == 0);
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += warps * 32) {
    vec<float, columns> all = {};
#pragma unroll
    for (int i = 0; i < warps; ++i) {
#pragma unroll
      for (int j = 0; j < columns; ++j) all.at[j] += of_warps[i][chunk * columns + j];
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) all.at[j] *= end.factor;
    results.store(sequence, at, chunk * columns, all);
  }
}

}  // namespace kiln::attention

/// Combines planes that were cut. grid (no: blocks of attention_decode_mma; yes: planes of all sequences; rows of a plane), block (32 * warps).
template <typename Form, int block_n, int tile_m, int warps>
__global__ void __launch_bounds__(32 * warps)
    attention_decode_combine(typename Form::T* out, float* lse, const float* sinks, const int* key_lengths,
                             float* partial_sums, void* partial_states, const void* cuts, kiln::axis_length batch,
                             kiln::axis_length keys, int queries, int heads, int key_heads, long long out_batch_stride,
                             long long out_row_stride, long long out_head_stride, long long lse_batch_stride,
                             long long lse_head_stride, long long window_left) {
  using namespace kiln;
  using namespace kiln::attention;
  wait_for_predecessor();
  launch_dependents();
  const PlaneRows plane_rows(queries, heads, key_heads);
  const int block = static_cast<int>(blockIdx.x), planes = plane_rows.count(tile_m);
  int sequence, plane;
  Slots slots;
  if constexpr (Form::invariant == Invariant::no) {
    const Cut cut = static_cast<const Cut*>(cuts)[block];
    sequence = cut.sequence;
    plane = cut.plane;
    slots = {2ll * block + 1, 2ll * block + 2, 2, cut.parts};
  } else {
    const Batch<Form::mask> all(key_lengths, batch, keys, queries, window_left);
    sequence = block / planes;
    plane = block % planes;
    if (sequence >= all.sequences) return;
    const int blocks = all.extent(sequence, block_n).blocks, chunk = chunk_blocks(blocks, block_n);
    const long long first = static_cast<long long>(block) * most_chunks;
    slots = {first, first + 1, 1, chunk < blocks ? ceil_div(blocks, chunk) : 0};
  }
  if (slots.count == 0) return;
  const int row = static_cast<int>(blockIdx.y);
  const PlaneRows::At at = plane_rows.at(plane, row, tile_m);
  if (!at.exists) return;
  combine_row<Form, tile_m, warps>(
      {partial_sums, static_cast<RowState*>(partial_states)}, slots, row,
      {out, lse, sinks, out_batch_stride, out_row_stride, out_head_stride, lse_batch_stride, lse_head_stride}, sequence,
      at);
}
