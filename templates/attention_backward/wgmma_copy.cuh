// The warps of attention_backward_keys_wgmma that copy: tensors by TMA, the facts of rows, and dq's parts to where they are added up.
#pragma once

#include "common/attention/tile_search.cuh"
#include "common/bulk_add.cuh"
#include "wgmma_tile.cuh"

namespace kiln::attention {

struct BackwardMaps {
  const tensor_map *q, *k, *v, *dout;
};

/// For one thread: the keys of a tile and their values, then the queries of tile after tile and the gradients of their results.
template <typename Tiles>
__device__ __forceinline__ void copy_tiles(const BackwardLayout<Tiles>& shared, const BackwardMaps& maps,
                                           const Work& work, int key_head, QueryTiles at, int count) {
  const Place keys = shared.keys();
  mbarrier_arrive_expect_tx(keys.full, Tiles::Key::bytes + Tiles::Value::bytes);
  Tiles::Key::load(keys.data, maps.k, keys.full, key_head, work.of.first_key + work.row, work.of.plane);
  Tiles::Value::load(keys.data + BackwardLayout<Tiles>::value, maps.v, keys.full, key_head,
                     work.of.first_key + work.row, work.of.plane);
  RingPosition<Tiles::stages> stage;
#pragma unroll 1
  for (int i = 0; i < count; ++i, at.advance(), stage.advance()) {
    const Place queries = shared.queries(stage.slot), gradients = shared.gradients(stage.slot);
    const int row = work.of.first_query + at.row;
    mbarrier_wait(queries.empty, stage.parity ^ 1);
    mbarrier_arrive_expect_tx(queries.full, Tiles::Query::bytes);
    Tiles::Query::load(queries.data, maps.q, queries.full, at.head, row, work.of.plane);
    mbarrier_wait(gradients.empty, is_crowded<Tiles> ? i % 2 ^ 1 : stage.parity ^ 1);
    mbarrier_arrive_expect_tx(gradients.full, Tiles::Gradient::bytes);
    Tiles::Gradient::load(gradients.data, maps.dout, gradients.full, at.head, row, work.of.plane);
  }
}

/// For one warp: facts of the queries, tile after tile.
template <typename Tiles>
__device__ __forceinline__ void copy_facts(const BackwardLayout<Tiles>& shared, char* memory, const RowFacts* facts,
                                           const Work& work, QueryTiles at, int count, int heads, int queries) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPosition<Tiles::stages> stage;
#pragma unroll 1
  for (int i = 0; i < count; ++i, at.advance(), stage.advance()) {
    const RowFacts* const from =
        facts + row_index(work.of.plane, at.head, work.of.first_query + at.row, heads, queries);
    auto* const to = reinterpret_cast<float*>(memory + BackwardLayout<Tiles>::facts +
                                              stage.slot * BackwardLayout<Tiles>::facts_bytes);
    RowFacts own[Tiles::tile_m / 32];
#pragma unroll
    for (int j = 0; j < Tiles::tile_m / 32; ++j) {
      own[j] = {infinity(), 0.0f};
      if (at.row + j * 32 + lane < work.of.queries) own[j] = from[j * 32 + lane];
    }
    mbarrier_wait(shared.queries(stage.slot).empty, stage.parity ^ 1);
#pragma unroll
    for (int j = 0; j < Tiles::tile_m / 32; ++j) {
      to[j * 32 + lane] = own[j].lse2;
      to[Tiles::tile_m + j * 32 + lane] = own[j].delta;
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(shared.queries(stage.slot).full);
  }
}

/// For one thread: adds dq's part of each tile to its queries' sums. These begin at the sequence's first query of head
/// 0 and are `head_stride` from head to head. Rows past the sequence's end stay out.
template <typename Tiles>
__device__ __forceinline__ void add_tiles(const BackwardLayout<Tiles>& shared, float* sums, long long head_stride,
                                          const Work& work, QueryTiles at, int count) {
  constexpr int head_dim = Tiles::Form::head_dim;
  const Place part = shared.sums();
#pragma unroll 1
  for (int i = 0; i < count; ++i, at.advance()) {
    const int rows = min(Tiles::tile_m, work.of.queries - at.row);
    mbarrier_wait(part.full, i % 2);
    bulk_add(sums + at.head * head_stride + static_cast<long long>(at.row) * head_dim, part.data, rows * head_dim * 4);
    tma_store_commit();
    tma_store_wait_read<0>();
    mbarrier_arrive(part.empty);
  }
}

}  // namespace kiln::attention
