// A block of attention_backward_queries_mma: the queries of a tile by all keys that they see, 16 for each warp.
#pragma once

#include "common/attention/tile_search.cuh"
#include "mma_tile.cuh"

namespace kiln::attention {

template <typename Form_, int tile_n_, int warps_, int stages_>
struct QueryMma {
  using Form = Form_;
  using T = typename Form::T;
  static constexpr int tile_m = warps_ * 16, tile_n = tile_n_, warps = warps_, stages = stages_, threads = warps * 32;
  using Key = RowTile<Form::head_dim, tile_n>;
  using Value = RowTile<Form::value_dim, tile_n>;
  using Query = RowTile<Form::head_dim, tile_m>;
  using Gradient = RowTile<Form::value_dim, tile_m>;  // of out
  static constexpr int gradient = Query::bytes, stage = gradient + Gradient::bytes,
                       stage_bytes = Key::bytes + Value::bytes, bytes = stage + stages * stage_bytes;
};

template <typename Tiles>
class QueryTile {
 public:
  using Form = typename Tiles::Form;
  using T = typename Form::T;

  __device__ __forceinline__ QueryTile(char* memory, const Work& work, const Visible<Form::mask>& visible,
                                       const Scores<Form::soft_cap>& to_scores, const ScoreInputs<T>& inputs)
      : shared_(shared_address(memory)),
        work_(work),
        visible_(visible),
        to_scores_(to_scores),
        warp_row_(static_cast<int>(threadIdx.x) / 32 * 16),
        row_(warp_row_ + static_cast<int>(threadIdx.x) % 32 / 4),
        limits_(visible, work.row + row_),
        terms_(inputs, to_scores, visible, work.of, work.head, work.row + row_) {}

  __device__ __forceinline__ void copy_queries(const T* q, long long q_row_stride, const T* dout,
                                               long long out_row_stride) {
    const int exist = work_.of.queries - work_.row;
    Tiles::Query::template copy<Tiles::threads>(shared_, q, q_row_stride, exist);
    Tiles::Gradient::template copy<Tiles::threads>(shared_ + Tiles::gradient, dout, out_row_stride, exist);
  }
  /// Takes facts from the tile's first row on.
  __device__ __forceinline__ void take_facts(const RowFacts* facts) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      facts_[half] = {infinity(), 0.0f};
      if (work_.row + row_ + 8 * half < work_.of.queries) facts_[half] = facts[row_ + 8 * half];
    }
  }

  /// k and v are those of the sequence and the head.
  __device__ __forceinline__ void run(const T* k, long long k_row_stride, const T* v, long long v_row_stride) {
    const KeyBlocks blocks =
        key_blocks(visible_, work_.row, min(work_.row + Tiles::tile_m, work_.of.queries) - 1, Tiles::tile_n);
    const auto copy_block = [&](int block) {
      const long long key = static_cast<long long>(block) * Tiles::tile_n;
      const int exist = work_.of.keys - block * Tiles::tile_n;
      const unsigned to = stage_of(block);
      Tiles::Key::template copy<Tiles::threads>(to, k + key * k_row_stride, k_row_stride, exist);
      Tiles::Value::template copy<Tiles::threads>(to + Tiles::Key::bytes, v + key * v_row_stride, v_row_stride, exist);
    };
    if (Tiles::stages == 2 && blocks.end > blocks.begin) copy_block(blocks.end - 1);
    cp_async_commit();
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block) {
      if (block - (Tiles::stages - 1) >= blocks.begin) copy_block(block - (Tiles::stages - 1));
      cp_async_commit();
      cp_async_wait<Tiles::stages - 1>();
      __syncthreads();
      multiply_block(stage_of(block), block * Tiles::tile_n);
      __syncthreads();  // all have read the buffers
    }
    cp_async_wait<0>();
  }

  /// At the tile's first row.
  __device__ __forceinline__ void store(T* dq, long long q_row_stride, float scale) const {
    store_units<T, Form::head_dim>(dq, q_row_stride, dq_, scale, 0, row_, work_.of.queries - work_.row);
  }

 private:
  __device__ __forceinline__ unsigned stage_of(int block) const {
    return shared_ + Tiles::stage + (Tiles::stages == 2 ? block % 2 : 0) * Tiles::stage_bytes;
  }

  __device__ __forceinline__ void multiply_block(unsigned tile_k, int first_key) {
    const unsigned tile_v = tile_k + Tiles::Key::bytes;
    constexpr int held = Tiles::tile_n / 2;
    const auto terms = terms_.template at<held>(first_key);
    const auto kept = terms_.template kept<held>(first_key);
    float weights[held], changes[held], slopes[Form::soft_cap == SoftCap::tanh ? held : 1];
    multiply_rows<T, typename Tiles::Query, typename Tiles::Key>(weights, shared_, warp_row_, tile_k, 0);
    to_scores_.cap(weights);
    if constexpr (Form::soft_cap == SoftCap::tanh) {
#pragma unroll
      for (int i = 0; i < held; ++i) slopes[i] = fmaf(-weights[i], weights[i], 1.0f);
    }
    terms.add_to(weights);
    limits_.template apply<Form::mask>(weights, first_key);
#pragma unroll
    for (int i = 0; i < held; ++i) weights[i] = exp2_approx(fmaf(weights[i], to_scores_.rate, -facts_[i / 2 % 2].lse2));
    multiply_rows<T, typename Tiles::Gradient, typename Tiles::Value>(changes, shared_ + Tiles::gradient, warp_row_,
                                                                      tile_v, 0);
#pragma unroll
    for (int i = 0; i < held; ++i) {
      changes[i] = weights[i] *
                   fmaf(kept.keep(changes[i], i), terms_.scale_of_kept() / weight_scale<T>, -facts_[i / 2 % 2].delta);
      if constexpr (Form::soft_cap == SoftCap::tanh) changes[i] *= slopes[i];
    }
#pragma unroll
    for (int step = 0; step < Tiles::tile_n / 16; ++step) {
      unsigned a[4];
      pack_weights<T>(a, changes, step);
      add_product<T, typename Tiles::Key, false>(dq_, a, tile_k, step * 16, 0);
    }
  }

  unsigned shared_;
  Work work_;
  Visible<Form::mask> visible_;
  Scores<Form::soft_cap> to_scores_;
  int warp_row_, row_;  // of the warp and the thread, in the tile
  RowLimits limits_;
  RowTerms<Form> terms_;
  RowFacts facts_[2];
  float dq_[Tiles::Key::k_steps * 8] = {};
};

}  // namespace kiln::attention
