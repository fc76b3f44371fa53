// attention_backward on the tensor cores of sm_90a by wgmma.
//
// The passes are mma.cuh's. A block has a tile of keys. Two warps of its first warpgroup copy, by TMA, these and the
// queries that see them. Each other warpgroup multiplies. Their gradients of weights meet in shared memory for dq. A
// third warp adds dq's part of each tile to sums in global memory by bulk copies. Or dq has a pass of its own, whose
// blocks have tiles of queries. Where heads share a key head, a block goes through all of them. Or (`by_head`) it takes
// one and adds its part of dk and dv to sums, so that there are more blocks, which end together.
#pragma once

#include "common/attention/sorted_tiles.cuh"
#include "common/dependent_launch.cuh"
#include "common/elect.cuh"
#include "rows.cuh"
#include "wgmma_keys.cuh"
#include "wgmma_queries.cuh"

/// grid (at least as many blocks as there are tiles of tile_n keys, by key_heads or (`by_head`) heads). Block and
/// dynamic shared memory are as wgmma.toml says. The maps show tensors as [planes, tokens, heads, columns]. A box has
/// one plane, tile_m or tile_n tokens, one head and the columns of BackwardWgmma's tiles. Else as
/// attention_backward_keys_mma.
template <typename Form, int tile_m, int tile_n, int stages, bool split, bool sums_dq, bool by_head>
__global__ void __launch_bounds__(kiln::attention::BackwardWgmma<Form, tile_m, tile_n, stages, split, sums_dq>::threads,
                                  1)
    attention_backward_keys_wgmma(
        const __grid_constant__ kiln::tensor_map q_map, const __grid_constant__ kiln::tensor_map k_map,
        const __grid_constant__ kiln::tensor_map v_map, const __grid_constant__ kiln::tensor_map dout_map,
        const kiln::attention::RowFacts* facts, const int* query_offsets, const int* key_offsets, float* sums,
        float* key_sums, kiln::attention::HeadRows<typename Form::T> dk, kiln::attention::HeadRows<typename Form::T> dv,
        int batch, int queries, int keys, int heads, int key_heads,
        const __grid_constant__ kiln::attention::ScoreTerms<typename Form::T> terms_given, int section) {
  using namespace kiln;
  using namespace kiln::attention;
  using Tiles = BackwardWgmma<Form, tile_m, tile_n, stages, split, sums_dq>;
  using Layout = BackwardLayout<Tiles>;
  const ScoreTerms<typename Form::T> terms = in_registers(terms_given);
  char* const memory = dynamic_shared();
  const Layout shared{shared_address(memory)};
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    shared.make_barriers();
    prefetch_tensormap(&q_map);
    prefetch_tensormap(&k_map);
    prefetch_tensormap(&v_map);
    prefetch_tensormap(&dout_map);
  }
  __syncthreads();
  wait_for_predecessor();
  launch_dependents();
  const Work work = agreed(find_work<Form::layout, Form::mask, tile_n, Side::keys>(
      {query_offsets, key_offsets, batch, queries, keys}, by_head ? heads : key_heads, section,
      static_cast<int>(blockIdx.x)));
  if (work.exists == 0) return;
  const Visible<Form::mask> visible(work.of.queries, work.of.keys, window_of(terms));
  const int group = heads / key_heads, key_head = by_head ? work.head / group : work.head;
  const QueryTiles at(queries_of(visible, work.of.queries, work.row, min(work.row + tile_n, work.of.keys)), tile_m,
                      by_head ? work.head : work.head * group);
  const int count = by_head ? at.per_head() : at.per_head() * group;

  // Not of `warp`: ptxas would ignore setmaxnreg.
  const int of_block = __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);
  take_registers<Tiles::consumers>(of_block == 0);
  if (of_block == 0) {
    if (warp == 0 && elect_one())
      copy_tiles<Tiles>(shared, {&q_map, &k_map, &v_map, &dout_map}, work, key_head, at, count);
    if (warp == 1) copy_facts<Tiles>(shared, memory, facts, work, at, count, heads, queries);
    if constexpr (sums_dq)
      if (warp == 2 && elect_one())
        add_tiles<Tiles>(shared,
                         sums + row_index(work.of.plane, 0, work.of.first_query, heads, queries) * Form::head_dim,
                         static_cast<long long>(queries) * Form::head_dim, work, at, count);
    return;
  }
  WarpgroupKeys<Tiles> rows(shared, memory, of_block - 1, work, visible, Scores<Form::soft_cap>(terms.scale, terms.cap),
                            terms.inputs());
  rows.run(at, count);
  const long long row = static_cast<long long>(work.of.first_key) + work.row;
  if constexpr (by_head) {
    if (count == 0) return;
    const long long at_row = row_index(work.of.plane, key_head, row, key_heads, keys),
                    all = row_index(Form::layout == attention::Layout::packed ? 1 : batch, 0, 0, key_heads, keys);
    rows.add(key_sums + at_row * Form::head_dim, key_sums + all * Form::head_dim + at_row * Form::value_dim,
             terms.scale);
  } else {
    rows.store(dk.at + work.of.plane * dk.batch_stride + row * dk.row_stride + key_head * dk.head_stride, dk.row_stride,
               dv.at + work.of.plane * dv.batch_stride + row * dv.row_stride + key_head * dv.head_stride, dv.row_stride,
               terms.scale);
  }
}

/// Computes dq, by tiles of tile_m queries: grid (at least as many blocks as there are tiles, by heads).
template <typename Form, int tile_m, int tile_n, int stages>
__global__ void __launch_bounds__(kiln::attention::QueryWgmma<Form, tile_m, tile_n, stages>::threads, 1)
    attention_backward_queries_wgmma(
        const __grid_constant__ kiln::tensor_map q_map, const __grid_constant__ kiln::tensor_map k_map,
        const __grid_constant__ kiln::tensor_map v_map, const __grid_constant__ kiln::tensor_map dout_map,
        const kiln::attention::RowFacts* facts, const int* query_offsets, const int* key_offsets,
        kiln::attention::HeadRows<typename Form::T> dq, int batch, int queries, int keys, int heads, int key_heads,
        const __grid_constant__ kiln::attention::ScoreTerms<typename Form::T> terms_given, int section) {
  using namespace kiln;
  using namespace kiln::attention;
  using Tiles = QueryWgmma<Form, tile_m, tile_n, stages>;
  const ScoreTerms<typename Form::T> terms = in_registers(terms_given);
  char* const memory = dynamic_shared();
  const QueryLayout<Tiles> shared{shared_address(memory)};
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    shared.make_barriers();
    prefetch_tensormap(&q_map);
    prefetch_tensormap(&k_map);
    prefetch_tensormap(&v_map);
    prefetch_tensormap(&dout_map);
  }
  __syncthreads();
  wait_for_predecessor();
  launch_dependents();
  const Work work = agreed(find_work<Form::layout, Form::mask, tile_m, Side::queries>(
      {query_offsets, key_offsets, batch, queries, keys}, heads, section, static_cast<int>(blockIdx.x)));
  if (work.exists == 0) return;
  const Visible<Form::mask> visible(work.of.queries, work.of.keys, window_of(terms));
  const KeyBlocks blocks = key_blocks(visible, work.row, min(work.row + tile_m, work.of.queries) - 1, tile_n);
  // Not of `warp`: ptxas would ignore setmaxnreg.
  const int of_block = __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);
  take_registers<Tiles::consumers>(of_block == 0);
  if (of_block == 0) {
    if (warp == 0 && elect_one())
      copy_blocks<Tiles>(shared, &q_map, &k_map, &v_map, &dout_map, work, work.head / (heads / key_heads), blocks);
    return;
  }
  WarpgroupQueries<Tiles> rows(
      shared, memory, of_block - 1, work, visible, Scores<Form::soft_cap>(terms.scale, terms.cap),
      facts + row_index(work.of.plane, work.head, work.of.first_query, heads, queries), terms.inputs());
  rows.run(blocks);
  rows.store(dq.at + work.of.plane * dq.batch_stride + work.of.first_query * dq.row_stride + work.head * dq.head_stride,
             dq.row_stride, terms.scale);
}
