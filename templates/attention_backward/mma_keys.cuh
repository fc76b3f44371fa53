// A block of attention_backward_mma: the keys of a tile by all queries that see them, tile after tile of these.
#pragma once

#include "common/attention/tile_search.cuh"
#include "mma_tile.cuh"
#include "query_tiles.cuh"

namespace kiln::attention {

/// What the kernel is given of the queries' side.
template <typename T>
struct QuerySide {
  HeadRows<const T> q, dout;
  const RowFacts* facts;
  float* sums;  // of dq, [planes, heads, queries, head_dim]
  int heads, queries;
};

template <typename Tiles>
class KeyTile {
 public:
  using Form = typename Tiles::Form;
  using T = typename Form::T;

  __device__ __forceinline__ KeyTile(char* memory, const Work& work, const Visible<Form::mask>& visible,
                                     const QuerySide<T>& side, const Scores<Form::soft_cap>& to_scores,
                                     const ScoreInputs<T>& inputs)
      : memory_(memory),
        shared_(shared_address(memory)),
        work_(work),
        visible_(visible),
        side_(side),
        to_scores_(to_scores),
        inputs_(inputs),
        warp_(static_cast<int>(threadIdx.x) / 32),
        key_row_(warp_ % Tiles::key_groups * 16),
        split_(warp_ / Tiles::key_groups),
        limits_(visible, work.of.queries, work.row + key_row_ + static_cast<int>(threadIdx.x) % 32 / 4) {}

  __device__ __forceinline__ void copy_keys(const T* k, long long k_row_stride, const T* v, long long v_row_stride) {
    const int exist = work_.of.keys - work_.row;
    Tiles::Key::template copy<Tiles::threads>(shared_, k, k_row_stride, exist);
    Tiles::Value::template copy<Tiles::threads>(shared_ + Tiles::value, v, v_row_stride, exist);
  }

  /// Goes through the queries of `heads` heads from the first on.
  __device__ __forceinline__ void run(int first_head, int heads) {
    QueryTiles at(queries_of(visible_, work_.of.queries, work_.row, min(work_.row + Tiles::tile_n, work_.of.keys)),
                  Tiles::tile_m, first_head);
    QueryTiles next = at;
    const int count = at.per_head() * heads;
    if (Tiles::stages == 2 && count > 0) copy_queries(next, 0);
    cp_async_commit();
#pragma unroll 1
    for (int i = 0; i < count; ++i, at.advance()) {
      const int stage = Tiles::stages == 2 ? i % 2 : 0;
      next.advance();
      if (Tiles::stages == 1) {
        copy_queries(at, 0);
      } else if (i + 1 < count) {
        copy_queries(next, stage ^ 1);
      }
      cp_async_commit();
      cp_async_wait<Tiles::stages - 1>();
      __syncthreads();
      multiply_tile(at, shared_ + Tiles::stage + stage * Tiles::stage_bytes,
                    memory_ + Tiles::stage + stage * Tiles::stage_bytes);
      __syncthreads();  // all have read the buffers
    }
    cp_async_wait<0>();
  }

  /// Stores the rows from the block's first key on. Keys that no query sees have gradients of 0.
  __device__ __forceinline__ void store(T* dk, long long k_row_stride, T* dv, long long v_row_stride, float scale) {
    const int row = key_row_ + static_cast<int>(threadIdx.x) % 32 / 4, rows = work_.of.keys - work_.row;
    store_units<T, Form::head_dim>(dk, k_row_stride, dk_, scale, split_ * key_units, row, rows);
    store_units<T, Form::value_dim>(dv, v_row_stride, dv_, kept_scale<Form>(inputs_) / weight_scale<T>,
                                    split_ * value_units, row, rows);
  }

 private:
  static constexpr int key_units = Tiles::template own_units<Form::head_dim>,
                       value_units = Tiles::template own_units<Form::value_dim>, held = Tiles::own_queries / 2;

  __device__ __forceinline__ void copy_queries(const QueryTiles& at, int stage) {
    const int exist = work_.of.queries - at.row;
    const long long row = static_cast<long long>(work_.of.first_query) + at.row;
    const unsigned to = shared_ + Tiles::stage + stage * Tiles::stage_bytes;
    Tiles::Query::template copy<Tiles::threads>(
        to,
        side_.q.at + work_.of.plane * side_.q.batch_stride + row * side_.q.row_stride + at.head * side_.q.head_stride,
        side_.q.row_stride, exist);
    Tiles::Gradient::template copy<Tiles::threads>(to + Tiles::Query::bytes,
                                                   side_.dout.at + work_.of.plane * side_.dout.batch_stride +
                                                       row * side_.dout.row_stride + at.head * side_.dout.head_stride,
                                                   side_.dout.row_stride, exist);
    const int own = static_cast<int>(threadIdx.x);
    if (own < Tiles::tile_m) {
      const RowFacts* const from =
          side_.facts + row_index(work_.of.plane, at.head, row, side_.heads, side_.queries) + (own < exist ? own : 0);
      cp_async_8(to + Tiles::Query::bytes + Tiles::Gradient::bytes + own * static_cast<int>(sizeof(RowFacts)), from,
                 own < exist);
    }
  }

  __device__ __forceinline__ void multiply_tile(const QueryTiles& at, unsigned tile_q, const char* stage) {
    const unsigned tile_g = tile_q + Tiles::Query::bytes;
    const int own = split_ * Tiles::own_queries;  // of the tile's queries
    const FactsByRow facts{reinterpret_cast<const RowFacts*>(stage + Tiles::Query::bytes + Tiles::Gradient::bytes) +
                           own};
    const int key = work_.row + key_row_ + static_cast<int>(threadIdx.x) % 32 / 4;
    const auto terms =
        terms_of_keys<Form, held>(inputs_, to_scores_.rate, visible_, work_.of, at.head, key, at.row + own);
    const auto kept = kept_of<Form, false, held>(inputs_, work_.of, at.head, key, at.row + own);
    TileGradient<T, Form::soft_cap, held> gradient;
    float products[held];
    multiply_rows<T, typename Tiles::Key, typename Tiles::Query>(products, shared_, key_row_, tile_q, own);
    gradient.take_weights(products, to_scores_, terms, facts);
    if (!all_seen(visible_, work_.of.queries, at.row, Tiles::tile_m, work_.row, Tiles::tile_n))
      limits_.apply(gradient.weights, at.row + own);
    multiply_rows<T, typename Tiles::Value, typename Tiles::Gradient>(products, shared_ + Tiles::value, key_row_,
                                                                      tile_g, own);
    gradient.take_gradients(products, kept, kept_scale<Form>(inputs_), facts);
    keep_all(gradient.weights, kept);

    if constexpr (Tiles::shares_weights) put(Tiles::weights, gradient.weights, own);
    if constexpr (Tiles::shares_weights || Tiles::sums_dq) put(Tiles::changes, products, own);
    if constexpr (Tiles::shares_weights) __syncthreads();
#pragma unroll
    for (int step = 0; step < Tiles::tile_m / 16; ++step) {
      unsigned a[4];
      if constexpr (Tiles::shares_weights) {
        Tiles::Weights::load_a(a, shared_ + Tiles::weights, key_row_, step);
      } else {
        pack_weights<T>(a, gradient.weights, step);
      }
      add_product<T, typename Tiles::Gradient, value_units * Tiles::splits != Tiles::Value::k_steps>(
          dv_, a, tile_g, step * 16, split_ * value_units);
      if constexpr (Tiles::shares_weights) {
        Tiles::Weights::load_a(a, shared_ + Tiles::changes, key_row_, step);
      } else {
        pack_weights<T>(a, products, step);
      }
      add_product<T, typename Tiles::Query, key_units * Tiles::splits != Tiles::Key::k_steps>(dk_, a, tile_q, step * 16,
                                                                                              split_ * key_units);
    }
    if constexpr (Tiles::sums_dq) {
      if constexpr (!Tiles::shares_weights) __syncthreads();
      add_queries(at);
    }
  }

  /// Rounds what lies as scores do and puts it where all warps read it: keys along rows.
  __device__ __forceinline__ void put(int to, const float (&values)[held], int own) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int chunk = 0; chunk < held / 4; ++chunk)
        *reinterpret_cast<unsigned*>(
            memory_ + to + Tiles::Weights::offset(key_row_ + lane / 4 + 8 * half, own / 8 + chunk) + lane % 4 * 4) =
            cvt_rn_x2<T>(values[4 * chunk + 2 * half], values[4 * chunk + 2 * half + 1]);
    }
  }

  /// Adds these keys' part of dq, without `scale`, to the sums. Each warp has 16 queries, or more, by some of the columns.
  __device__ __forceinline__ void add_queries(const QueryTiles& at) {
    constexpr int groups = Tiles::tile_m / 16, units = Tiles::Key::k_steps,
                  parts = Tiles::warps > groups ? Tiles::warps / groups : 1, own_units = (units + parts - 1) / parts,
                  most = own_units < 4 ? own_units : 4;
    static_assert(Tiles::warps % groups == 0 || groups % Tiles::warps == 0);
    const int lane = static_cast<int>(threadIdx.x) % 32, part = Tiles::warps > groups ? warp_ / groups : 0;
    float* const to =
        side_.sums +
        row_index(work_.of.plane, at.head, work_.of.first_query + at.row, side_.heads, side_.queries) * Form::head_dim;
#pragma unroll 1
    for (int group = warp_ % groups; group < groups; group += Tiles::warps) {
#pragma unroll 1
      for (int first = part * own_units; first < min((part + 1) * own_units, units); first += most) {
        float sums[most * 8] = {};
#pragma unroll
        for (int step = 0; step < Tiles::key_groups; ++step) {
          unsigned a[4];
          Tiles::Weights::load_a_trans(a, shared_ + Tiles::changes, step * 16, group);
          add_product<T, typename Tiles::Key, true>(sums, a, shared_, step * 16, first);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = group * 16 + lane / 4 + 8 * half;
#pragma unroll
          for (int chunk = 0; chunk < most * 2; ++chunk) {
            const int column = (first * 2 + chunk) * 8 + lane % 4 * 2;
            if (at.row + row < work_.of.queries && column < Form::head_dim &&
                first + chunk / 2 < (part + 1) * own_units)
              add_pair(to + static_cast<long long>(row) * Form::head_dim + column, sums[4 * chunk + 2 * half],
                       sums[4 * chunk + 2 * half + 1]);
          }
        }
      }
    }
  }
  char* memory_;
  unsigned shared_;
  Work work_;
  Visible<Form::mask> visible_;
  QuerySide<T> side_;
  Scores<Form::soft_cap> to_scores_;
  ScoreInputs<T> inputs_;
  int warp_, key_row_, split_;
  KeyLimits limits_;
  float dk_[key_units * 8] = {}, dv_[value_units * 8] = {};
};

}  // namespace kiln::attention
