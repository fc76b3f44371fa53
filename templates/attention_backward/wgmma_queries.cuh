// A block of attention_backward_queries_wgmma: the queries of a tile by all keys that they see, 64 for each warpgroup that multiplies.
#pragma once

#include "common/attention/swizzled_tile.cuh"
#include "common/attention/tile_search.cuh"
#include "common/wgmma_widths.cuh"
#include "scores.cuh"

namespace kiln::attention {

template <typename Form_, int tile_m_, int tile_n_, int stages_>
struct QueryWgmma {
  using Form = Form_;
  using T = typename Form::T;
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, stages = stages_, consumers = tile_m / warpgroup_rows,
                       threads = warpgroup * (1 + consumers);
  using Query = SwizzledTile<Form::head_dim, tile_m>;
  using Gradient = SwizzledTile<Form::value_dim, tile_m>;  // of out
  using Key = SwizzledTile<Form::head_dim, tile_n>;
  using Value = SwizzledTile<Form::value_dim, tile_n>;
};

template <typename Tiles>
struct QueryLayout {
  static constexpr int gradient = Tiles::Query::bytes, stage = gradient + Tiles::Gradient::bytes,
                       stage_bytes = Tiles::Key::bytes + Tiles::Value::bytes,
                       barriers = stage + Tiles::stages * stage_bytes, bytes = barriers + 16 * (1 + 2 * Tiles::stages);
  unsigned base;  // a multiple of 1024

  /// Queries and gradients: filled once, and never emptied.
  __device__ __forceinline__ Place queries() const { return place(0, 0); }
  __device__ __forceinline__ Place keys(int slot) const { return place(stage + slot * stage_bytes, 1 + slot); }
  __device__ __forceinline__ Place values(int slot) const {
    return place(stage + slot * stage_bytes + Tiles::Key::bytes, 1 + Tiles::stages + slot);
  }
  /// For one thread.
  __device__ __forceinline__ void make_barriers() const {
#pragma unroll
    for (int i = 0; i < 1 + 2 * Tiles::stages; ++i) {
      mbarrier_init(base + barriers + 16 * i, 1);
      mbarrier_init(base + barriers + 16 * i + 8, Tiles::consumers * warpgroup / 32);
    }
    fence_mbarrier_init();
  }

 private:
  __device__ __forceinline__ Place place(int offset, int barrier) const {
    return {base + offset, base + barriers + 16 * barrier, base + barriers + 16 * barrier + 8};
  }
};

/// For one thread: a tile's queries and gradients, then keys and values from the last block that they see to the first.
template <typename Tiles>
__device__ __forceinline__ void copy_blocks(const QueryLayout<Tiles>& shared, const tensor_map* q, const tensor_map* k,
                                            const tensor_map* v, const tensor_map* dout, const Work& work, int key_head,
                                            const KeyBlocks& blocks) {
  if (blocks.end <= blocks.begin) return;
  const Place queries = shared.queries();
  mbarrier_arrive_expect_tx(queries.full, Tiles::Query::bytes + Tiles::Gradient::bytes);
  Tiles::Query::load(queries.data, q, queries.full, work.head, work.of.first_query + work.row, work.of.plane);
  Tiles::Gradient::load(queries.data + QueryLayout<Tiles>::gradient, dout, queries.full, work.head,
                        work.of.first_query + work.row, work.of.plane);
  RingPosition<Tiles::stages> stage;
#pragma unroll 1
  for (int block = blocks.end - 1; block >= blocks.begin; --block, stage.advance()) {
    const Place keys = shared.keys(stage.slot), values = shared.values(stage.slot);
    const int row = work.of.first_key + block * Tiles::tile_n;
    mbarrier_wait(keys.empty, stage.parity ^ 1);
    mbarrier_arrive_expect_tx(keys.full, Tiles::Key::bytes);
    Tiles::Key::load(keys.data, k, keys.full, key_head, row, work.of.plane);
    mbarrier_wait(values.empty, stage.parity ^ 1);
    mbarrier_arrive_expect_tx(values.full, Tiles::Value::bytes);
    Tiles::Value::load(values.data, v, values.full, key_head, row, work.of.plane);
  }
}

template <typename Tiles>
class WarpgroupQueries {
 public:
  using Form = typename Tiles::Form;
  using T = typename Form::T;

  /// `facts`: those of the sequence's first query of the head.
  __device__ __forceinline__ WarpgroupQueries(const QueryLayout<Tiles>& shared, char* memory, int consumer,
                                              const Work& work, const Visible<Form::mask>& visible,
                                              const Scores<Form::soft_cap>& to_scores, const RowFacts* facts,
                                              const ScoreInputs<T>& inputs)
      : shared_(shared),
        memory_(memory),
        consumer_(consumer),
        work_(work),
        visible_(visible),
        to_scores_(to_scores),
        first_row_(work.row + consumer * warpgroup_rows),
        row_(first_row_ + static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        limits_(visible, row_),
        terms_(inputs, to_scores, visible, work.of, work.head, row_) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      facts_[half] = {infinity(), 0.0f};
      if (row_ + 8 * half < work.of.queries) facts_[half] = facts[row_ + 8 * half];
    }
  }

  __device__ __forceinline__ void run(const KeyBlocks& blocks) {
    if (blocks.end > blocks.begin) mbarrier_wait(shared_.queries().full, 0);
    RingPosition<Tiles::stages> stage;
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block, stage.advance())
      multiply_block(block * Tiles::tile_n, stage);
  }

  /// At the sequence's first query.
  __device__ __forceinline__ void store(T* dq, long long q_row_stride, float scale) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      store_row<T>(dq + (row_ + 8 * half) * q_row_stride, dq_, half, scale, row_ + 8 * half < work_.of.queries);
  }

 private:
  static constexpr int held = Tiles::tile_n / 2, steps = Tiles::tile_n / 16;

  __device__ __forceinline__ void multiply_block(int key, const RingPosition<Tiles::stages>& stage) {
    const Place keys = shared_.keys(stage.slot), values = shared_.values(stage.slot);
    mbarrier_wait(keys.full, stage.parity);
    if constexpr (Form::layout == Layout::packed)
      if (work_.of.keys - key < Tiles::tile_n)  // others' keys may hold NaN
        clear_rows_from<typename Tiles::Key>(work_.of.keys - key, memory_ + (keys.data - shared_.base), 1 + consumer_);
    float weights[held], changes[held], slopes[Form::soft_cap == SoftCap::tanh ? held : 1];
    start_products<typename Tiles::Query, typename Tiles::Key>(weights, shared_.queries().data, keys.data);
    mbarrier_wait(values.full, stage.parity);
    start_products<typename Tiles::Gradient, typename Tiles::Value>(
        changes, shared_.queries().data + QueryLayout<Tiles>::gradient, values.data);
    const bool whole =
        visible_.end(first_row_) >= key + Tiles::tile_n && visible_.begin(first_row_ + warpgroup_rows - 1) <= key;
    const auto terms = terms_.template at<held>(key);
    const auto kept = terms_.template kept<held>(key);
    wgmma_wait_group<1>();
    hold(weights);
    to_scores_.cap(weights);
#pragma unroll
    for (int i = 0; i < held; ++i) {
      if constexpr (Form::soft_cap == SoftCap::tanh) slopes[i] = fmaf(-weights[i], weights[i], 1.0f);
      weights[i] = exp2_approx(fmaf(terms.add(weights[i], i), to_scores_.rate, -facts_[i / 2 % 2].lse2));
    }
    wgmma_wait_group<0>();
    hold(changes);
    release(values);
#pragma unroll
    for (int i = 0; i < held; ++i) {
      changes[i] = weights[i] *
                   fmaf(kept.keep(changes[i], i), terms_.scale_of_kept() / weight_scale<T>, -facts_[i / 2 % 2].delta);
      if constexpr (Form::soft_cap == SoftCap::tanh) changes[i] *= slopes[i];
    }
    if (!whole) limits_.template apply<Form::mask>(changes, key, 0.0f);
    unsigned a[steps][4];
#pragma unroll
    for (int step = 0; step < steps; ++step) pack_weights<T>(a[step], changes, step);
    const unsigned long long b = Tiles::Key::along_rows(keys.data);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < steps; ++step)
      wgmma_of_width<T, Form::head_dim, major::mn>(dq_, a[step],
                                                   wgmma_descriptor_at(b, step * 16 * Tiles::Key::swizzle), true);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    hold(dq_);
    release(keys);
  }

  template <typename A, typename B>
  __device__ __forceinline__ void start_products(float (&products)[held], unsigned a_tile, unsigned b_tile) {
    const unsigned long long a = A::along_columns(a_tile + A::at(consumer_ * warpgroup_rows, 0)),
                             b = B::along_columns(b_tile);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < A::steps; ++step)
      wgmma<T, T, Tiles::tile_n>(products, wgmma_descriptor_at(a, A::at(0, step)),
                                 wgmma_descriptor_at(b, B::at(0, step)), step > 0);
    wgmma_commit_group();
  }

  QueryLayout<Tiles> shared_;
  char* memory_;
  int consumer_;
  Work work_;
  Visible<Form::mask> visible_;
  Scores<Form::soft_cap> to_scores_;
  int first_row_, row_;  // of the warpgroup and the thread, in the sequence
  RowLimits limits_;
  RowTerms<Form> terms_;
  RowFacts facts_[2];
  float dq_[Form::head_dim / 2] = {};
};

}  // namespace kiln::attention
