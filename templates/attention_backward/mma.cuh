// attention_backward on the tensor cores of sm_80 and later: mma.sync, fed by cp.async.
//
// Passes: first the facts of rows. Then a block for each tile of keys goes through the queries that see it and leaves
// dk and dv. For dq, either those blocks add up parts in f32, in no known order, or the weights are computed again by
// tiles of queries.
#pragma once

#include "mma_keys.cuh"
#include "mma_queries.cuh"

/// grid (at least as many blocks as there are tiles of tile_n keys, by key_heads), block (32 * warps); dynamic shared memory as mma.toml
/// says. `queries` and `keys` are those of a sequence (dense), or of all (packed). Tensors begin at multiples of 16 bytes, as do their
/// rows; dk and dv lie as k and v do. `section`: key heads whose queries L2 holds.
template <typename Form, int tile_m, int tile_n, int warps, int stages, bool sums_dq>
__global__ void __launch_bounds__(warps * 32, 1)
    attention_backward_keys_mma(const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> q,
                                const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> k,
                                const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> v,
                                const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> dout,
                                const kiln::attention::RowFacts* facts, const int* query_offsets,
                                const int* key_offsets, float* sums, typename Form::T* dk, typename Form::T* dv,
                                int batch, int queries, int keys, int heads, int key_heads,
                                const __grid_constant__ kiln::attention::ScoreTerms<typename Form::T> terms,
                                int section) {
  using namespace kiln;
  using namespace kiln::attention;
  using Tiles = BackwardMma<Form, tile_m, tile_n, warps, stages, sums_dq>;
  wait_for_predecessor();
  launch_dependents();
  TileSearch<Form::layout, tile_n, Side::keys> search({query_offsets, key_offsets, batch, queries, keys}, key_heads,
                                                      section);
  const Work work = search.find(static_cast<int>(blockIdx.x));
  if (work.exists == 0) return;
  const Visible<Form::mask> visible(work.of.queries, work.of.keys, window_of(terms));
  KeyTile<Tiles> tile(dynamic_shared(), work, visible, {q, dout, facts, sums, heads, queries},
                      Scores<Form::soft_cap>(terms.scale, terms.cap), terms.inputs());
  const long long row = static_cast<long long>(work.of.first_key) + work.row;
  const long long of_k = work.of.plane * k.batch_stride + row * k.row_stride + work.head * k.head_stride,
                  of_v = work.of.plane * v.batch_stride + row * v.row_stride + work.head * v.head_stride;
  tile.copy_keys(k.at + of_k, k.row_stride, v.at + of_v, v.row_stride);
  const int group = heads / key_heads;
  tile.run(work.head * group, group);
  tile.store(dk + of_k, k.row_stride, dv + of_v, v.row_stride, terms.scale);
}

/// Computes dq, which lies as q does, by tiles of 16 * warps queries: grid (at least as many blocks as there are tiles,
/// by heads).
template <typename Form, int tile_n, int warps, int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    attention_backward_queries_mma(const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> q,
                                   const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> k,
                                   const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> v,
                                   const __grid_constant__ kiln::attention::HeadRows<const typename Form::T> dout,
                                   const kiln::attention::RowFacts* facts, const int* query_offsets,
                                   const int* key_offsets, typename Form::T* dq, int batch, int queries, int keys,
                                   int heads, int key_heads,
                                   const __grid_constant__ kiln::attention::ScoreTerms<typename Form::T> terms,
                                   int section) {
  using namespace kiln;
  using namespace kiln::attention;
  using Tiles = QueryMma<Form, tile_n, warps, stages>;
  using T = typename Form::T;
  wait_for_predecessor();
  launch_dependents();
  TileSearch<Form::layout, Tiles::tile_m, Side::queries> search({query_offsets, key_offsets, batch, queries, keys},
                                                                heads, section);
  const Work work = search.find(static_cast<int>(blockIdx.x));
  if (work.exists == 0) return;
  const Visible<Form::mask> visible(work.of.queries, work.of.keys, window_of(terms));
  const int key_head = work.head / (heads / key_heads);
  const T* const of_k =
      k.at + work.of.plane * k.batch_stride + work.of.first_key * k.row_stride + key_head * k.head_stride;
  const T* const of_v =
      v.at + work.of.plane * v.batch_stride + work.of.first_key * v.row_stride + key_head * v.head_stride;
  const long long row = static_cast<long long>(work.of.first_query) + work.row;
  const long long of_q = work.of.plane * q.batch_stride + row * q.row_stride + work.head * q.head_stride;
  QueryTile<Tiles> tile(dynamic_shared(), work, visible, Scores<Form::soft_cap>(terms.scale, terms.cap),
                        terms.inputs());
  tile.copy_queries(q.at + of_q, q.row_stride,
                    dout.at + work.of.plane * dout.batch_stride + row * dout.row_stride + work.head * dout.head_stride,
                    dout.row_stride);
  tile.take_facts(facts + row_index(work.of.plane, work.head, row, heads, queries));
  tile.run(of_k, k.row_stride, of_v, v.row_stride);
  tile.store(dq + of_q, q.row_stride, terms.scale);
}
