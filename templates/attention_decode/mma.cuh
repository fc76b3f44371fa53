// attention_decode on the tensor cores of sm_80 and later: mma.sync, fed by rings of cp.async.
//
// A block has `key_warps` groups of warps. Each group has its own keys: every key_warps-th `tile_n` of them. It has its
// own ring of `stages` tiles of keys and values, and its own softmax. So a group waits for no other until a part ends.
// Its `row_warps` warps have 16 rows each: the queries of all heads that share a key head.
#pragma once

#include "combine.cuh"
#include "common/dependent_launch.cuh"
#include "common/view.cuh"
#include "tile.cuh"

/// grid (any), block (32 * row_warps * key_warps); dynamic shared memory DecodeTiling::bytes. q, k, v and out begin at multiples of 16 bytes,
/// as do their rows. k_scale and v_scale: of e4m3 alone, else null. `partial_sums`, `partial_states`: as Parts counts slots; cuts: one
/// for each block. The longest sequence is cut into about `splits` parts at most.
template <typename Form, int tile_n, int row_warps, int key_warps, int stages, int resident>
__global__ void __launch_bounds__(32 * row_warps * key_warps, resident)
    attention_decode_mma(const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> q,
                         const __grid_constant__ kiln::attention::HeadRows<const typename Form::Cache> k,
                         const __grid_constant__ kiln::attention::HeadRows<const typename Form::Cache> v,
                         const __grid_constant__ kiln::attention::HeadRows<typename Form::T> out,
                         const __grid_constant__ kiln::attention::LogSums lse, const float* sinks,
                         const int* key_lengths, float* partial_sums, void* partial_states, void* cuts,
                         kiln::axis_length batch, kiln::axis_length keys, int queries, int heads, int key_heads,
                         const __grid_constant__ kiln::view<const int, 1> block_table, int page_size, int pages,
                         float scale, float cap, long long window_left, int splits, kiln::attention::HeadScales k_scale,
                         kiln::attention::HeadScales v_scale) {
  using namespace kiln;
  using namespace kiln::attention;
  using Tiling = DecodeTiling<Form, tile_n, row_warps, key_warps, stages>;
  wait_for_predecessor();
  launch_dependents();

  const int warp = static_cast<int>(threadIdx.x) / 32, group = warp / row_warps, warp_row = warp % row_warps * 16;
  char* const memory = dynamic_shared();
  const unsigned tile_q = shared_address(memory) + Tiling::search_bytes, rings = tile_q + Tiling::Query::bytes;
  const unsigned ring = rings + group * stages * Tiling::stage_bytes;
  const Batch<Form::mask> all(key_lengths, batch, keys, queries, window_left);
  const PlaneRows plane_rows(queries, heads, key_heads);
  const int planes = plane_rows.count(Tiling::tile_m);
  const Share share =
      find_share<Tiling::threads>(all, Tiling::block_n, planes, splits, reinterpret_cast<long long*>(memory));
  const Results<typename Form::T> results = {
      out.at, lse.at, sinks, out.batch_stride, out.row_stride, out.head_stride, lse.batch_stride, lse.head_stride};
  const Partials<Tiling::tile_m, Form::value_dim> partials = {partial_sums, static_cast<RowState*>(partial_states)};
  Scores<Form::soft_cap> to_scores(scale, cap);

  Parts<Form::invariant, Form::mask> parts(all, Tiling::block_n, planes, share);
  Part part;
  while (parts.next(part)) {
    copy_queries<Tiling>(tile_q, q.at + part.sequence * q.batch_stride, q.row_stride, q.head_stride, plane_rows,
                         part.plane);
    cp_async_commit();

    // The group's tiles of the part: those that begin before the last key.
    const int key = (part.extent.first + part.from) * Tiling::block_n + group * tile_n;
    const int tiles = min(part.to - part.from, ceil_div(max(part.extent.end - key, 0), Tiling::block_n));
    const int key_head = plane_rows.key_head(part.plane);
    const CacheUnits<Form::has_bytes> units(k_scale, v_scale, key_head);
    TileCopy<Tiling> copy(
        {k.at + key_head * k.head_stride, k.batch_stride, k.row_stride},
        {v.at + key_head * v.head_stride, v.batch_stride, v.row_stride},
        {part.sequence, block_table.address + part.sequence * block_table.strides[0], page_size, pages}, part.extent,
        key);
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) {
      if (i < tiles) copy.next(ring + i * Tiling::stage_bytes);
      cp_async_commit();
    }
    cp_async_wait<stages - 1>();
    __syncthreads();  // all queries are there
    if constexpr (Form::has_bytes) {
      const float of_queries =
          queries_to_f16<typename Form::T, typename Tiling::Query, Tiling::tile_m, Tiling::threads>(
              memory + Tiling::search_bytes, reinterpret_cast<unsigned*>(memory));
      to_scores = Scores<Form::soft_cap>(units.of_logits(scale, of_queries), cap);
    }

    const RowLimits limits = limits_of<Tiling>(all.visible(part.sequence), plane_rows, part.plane, warp_row);
    SoftmaxRows rows;
    float sums[Tiling::Value::k_steps * 8 * Tiling::packed] = {};
    absorb_tiles<Tiling>(sums, rows, copy, tile_q, ring, group, warp_row, to_scores, limits, key, tiles);
    __syncthreads();  // rings are free
    char* const exchange = memory + Tiling::search_bytes + Tiling::Query::bytes;
    give_sums<Tiling>(exchange, sums, rows, to_scores.rate, units.of_values(), group, warp_row);
    __syncthreads();
    end_part<Tiling>(exchange, part, plane_rows, results, partials);
    __syncthreads();
  }
  if constexpr (Form::invariant == Invariant::no)
    if (threadIdx.x == 0) static_cast<Cut*>(cuts)[blockIdx.x] = parts.cut_at_end(part);
}
