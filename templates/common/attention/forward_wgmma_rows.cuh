// A warpgroup of attention_wgmma that multiplies: 64 rows by the blocks of keys that the tile sees, the last block first.
#pragma once

#include "common/attention/byte_values.cuh"
#include "common/attention/forward_wgmma_tile.cuh"
#include "common/attention/score_terms.cuh"
#include "common/attention/softmax_rows.cuh"
#include "common/named_barrier.cuh"
#include "common/wgmma_widths.cuh"

namespace kiln::attention {

/// Whose turn it is at the tensor cores, by barriers from 4 on: while one warpgroup multiplies, another is at its softmax.
template <typename Tiles>
struct Turns {
  static constexpr int first_barrier = 4, threads = 2 * warpgroup;

  static __device__ __forceinline__ void take(int consumer) {
    if constexpr (Tiles::pingpong) named_barrier_sync(first_barrier + consumer, threads);
  }
  static __device__ __forceinline__ void pass(int consumer) {
    if constexpr (Tiles::pingpong)
      named_barrier_arrive(first_barrier + (consumer + 1 == Tiles::consumers ? 0 : consumer + 1), threads);
  }
};

/// The sums of a thread's weighted values. Products add to them, and they are scaled in place.
template <int columns_, bool promoted>
struct ValueSums {
  static constexpr int columns = columns_;  // of a product
  float all[columns / 2] = {};

  __device__ __forceinline__ float (&of_product())[columns / 2] { return all; }
  __device__ __forceinline__ void add_product(int) {}
  __device__ __forceinline__ void scale(bool moves, const float (&factor)[2]) {
    if (moves) scale_rows(all, factor);
  }
};
/// Sums of values where a product is added in f32 once it is whole, as one instruction with the scaling that was due before it. Columns that
/// registers cannot hold twice come in parts.
template <int columns_>
struct ValueSums<columns_, true> {
  static constexpr int columns = columns_ <= 128 ? columns_ : columns_ % 64 == 0 ? 64 : 32;
  float all[columns_ / 2] = {}, product[columns / 2], due[2] = {1.0f, 1.0f};

  __device__ __forceinline__ float (&of_product())[columns / 2] { return product; }
  __device__ __forceinline__ void add_product(int part) {
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) {
      float& sum = all[part * (columns / 2) + i];
      sum = fmaf(sum, due[i / 2 % 2], product[i]);
    }
  }
  __device__ __forceinline__ void scale(bool, const float (&factor)[2]) { due[0] = factor[0], due[1] = factor[1]; }
};

/// The queries and heads of a thread's two rows of a tile. `row`: the tile's first query. `consumer`: the warpgroup's number.
template <typename Tiles>
struct OwnRows {
  static constexpr int heads = Tiles::heads;
  static constexpr bool one_head = 8 % heads == 0;  // both rows are of it

  /// The first query of the warpgroup's 64 rows.
  static __device__ __forceinline__ int first_query(int row, int consumer) {
    if constexpr (one_head) return row + consumer * (warpgroup_rows / heads);
    return row + consumer * warpgroup_rows / heads;
  }
  /// The last query of these rows. `first`: their first one.
  static __device__ __forceinline__ int last_query(int row, int consumer, int first) {
    if constexpr (one_head) return first + warpgroup_rows / heads - 1;
    return row + min((consumer * warpgroup_rows + warpgroup_rows - 1) / heads, Tiles::queries - 1);
  }
  /// The query of the thread's first row. `first`: the warpgroup's first query.
  static __device__ __forceinline__ int query(int row, int consumer, int first) {
    if constexpr (one_head)
      return first + static_cast<int>(threadIdx.x) % warpgroup / 32 * (16 / heads) +
             static_cast<int>(threadIdx.x) % 32 / 4 / heads;
    return row + of_tile(consumer) / heads;
  }
  /// By how many queries the second row is after the first.
  static __device__ __forceinline__ int apart(int consumer) {
    if constexpr (one_head) return 8 / heads;
    return (of_tile(consumer) + 8) / heads - of_tile(consumer) / heads;
  }
  /// The head of the first row (`half` 0) or of the second (1). `first`: the tile's first head.
  static __device__ __forceinline__ int head(int first, int consumer, int half) {
    if constexpr (one_head) return first + static_cast<int>(threadIdx.x) % 32 / 4 % heads;
    return first + (of_tile(consumer) + 8 * half) % heads;
  }

 private:
  /// The first row among the tile's.
  static __device__ __forceinline__ int of_tile(int consumer) {
    return consumer * warpgroup_rows + static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
};

/// What the warpgroup holds of its 64 rows while it goes through the keys.
template <typename Tiles>
class WarpgroupRows {
 public:
  using Form = typename Tiles::Form;
  using T = typename Form::T;
  using Visible = attention::Visible<Form::mask>;

  __device__ __forceinline__ WarpgroupRows(const SharedLayout<Tiles>& shared, char* memory, int consumer,
                                           const Scores<Form::soft_cap>& to_scores)
      : shared_(shared), memory_(memory), consumer_(consumer), to_scores_(to_scores) {}

  /// From the next tile on.
  __device__ __forceinline__ void set_scores(const Scores<Form::soft_cap>& to_scores) { to_scores_ = to_scores; }

  /// Goes through a tile's blocks of keys; hands `store(sums, softmax)` what comes of them.
  template <typename Store>
  __device__ __forceinline__ void attend(const Work& work, const Visible& visible, const ScoreInputs<T>& inputs,
                                         const KeyBlocks& blocks, Store store) {
    using Own = OwnRows<Tiles>;
    const int first_row = Own::first_query(work.row, consumer_);
    if constexpr (Tiles::trims) {
      if (first_row >= work.of.queries) {
        pass_by(blocks.end - blocks.begin);
        return;
      }
    }
    const int row = Own::query(work.row, consumer_, first_row);
    const RowLimits limits(visible, row, Own::apart(consumer_));
    const RowTerms<Form> terms(inputs, to_scores_, visible, work.of, Own::head(work.head, consumer_, 0), row);
    Sums sums;
    SoftmaxRows rows;
    if (blocks.end > blocks.begin) {
      // All rows see all keys of the blocks between.
      const int whole_begin = ceil_div(visible.begin(Own::last_query(work.row, consumer_, first_row)), Tiles::tile_n);
      const int whole_end = max(visible.end(first_row), 0) / Tiles::tile_n;
      mbarrier_wait(shared_.query().full, query_at_.parity);
      query_at_.advance();
      if constexpr (Tiles::holds_queries) hold_queries();
      const int unseen = visible.begin(work.row) - blocks.begin * Tiles::tile_n;
      if constexpr (Tiles::overlap) {
        overlapped(sums, rows, work, limits, terms, blocks, whole_begin, whole_end, unseen);
      } else {
        in_turn(sums, rows, work, limits, terms, blocks, whole_begin, whole_end, unseen);
      }
    }
    store(sums.all, rows);
  }

 protected:
  static constexpr int steps = Tiles::tile_n / Tiles::step, score_steps = Tiles::Query::steps;
  using Sums = ValueSums<Form::value_dim, Tiles::promoted>;
  using Block = float[Tiles::tile_n / 2];
  using Weights = unsigned[steps][4];

  /// The next block's product with the values of the one before goes on during this one's softmax. `unseen`: keys of the first block
  /// before those that the tile sees.
  __device__ __forceinline__ void overlapped(Sums& sums, SoftmaxRows& rows, const Work& work, const RowLimits& limits,
                                             const RowTerms<Form>& terms, const KeyBlocks& blocks, int whole_begin,
                                             int whole_end, int unseen) {
    Block scores;
    Weights weights;
    int block = blocks.end - 1;
    start_scores(scores);
    const auto added = terms.template at<Tiles::tile_n / 2>(block * Tiles::tile_n);
    const auto kept = terms.template kept<Tiles::tile_n / 2>(block * Tiles::tile_n);
    wgmma_wait_group<0>();
    end_scores(scores, block == blocks.begin);
    to_scores_.cap(scores);
    added.add_to(scores);
    if (block >= whole_end || block < whole_begin) limits.template apply<Form::mask>(scores, block * Tiles::tile_n);
    float factor[2];
    rows.template absorb<true, Lazy::no, Tiles::raised>(scores, to_scores_.rate, factor);
    keep_all(scores, kept);
    pack(weights, scores);
    clear_values_past(work.of.keys - block * Tiles::tile_n);

    --block;
    if constexpr (Form::mask != Mask::none) {
#pragma unroll 1
      for (; block >= blocks.begin && block >= whole_end; --block)
        step<true>(sums, rows, weights, limits, terms, block, block == blocks.begin);
    }
#pragma unroll 1
    for (; block >= blocks.begin && block >= whole_begin; --block)
      step<false>(sums, rows, weights, limits, terms, block, block == blocks.begin);
    if constexpr (Form::mask == Mask::window) {
#pragma unroll 1
      for (; block >= blocks.begin; --block)
        step<true>(sums, rows, weights, limits, terms, block, block == blocks.begin);
    }
    clear_values_before(unseen);
    start_values(sums, weights);
    end_values(sums, weights);
  }

  /// The product with `block`, and meanwhile that of the weights of the block after it, which become this one's.
  template <bool masked>
  __device__ __forceinline__ void step(Sums& sums, SoftmaxRows& rows, Weights& weights, const RowLimits& limits,
                                       const RowTerms<Form>& terms, int block, bool last) {
    Block scores;
    Turns<Tiles>::take(consumer_);
    start_scores(scores);
    start_values(sums, weights);
    Turns<Tiles>::pass(consumer_);
    const auto added = terms.template at<Tiles::tile_n / 2>(block * Tiles::tile_n);
    const auto kept = terms.template kept<Tiles::tile_n / 2>(block * Tiles::tile_n);
    wgmma_wait_group<1>();
    hold(scores);
    if constexpr (!Tiles::late) release_keys(last, true);
    to_scores_.cap(scores);
    added.add_to(scores);
    if constexpr (masked) limits.template apply<Form::mask>(scores, block * Tiles::tile_n);
    float factor[2];
    constexpr bool hides = masked || Form::bias == Bias::tensor;
    bool moves;
    if constexpr (Tiles::late) {
      moves = rows.template absorb<hides, Tiles::lazy, Tiles::raised, Tiles::amid>(
          scores, to_scores_.rate, factor, [&](float of_exponentials) {
            // Always released: ptxas keeps what needs the exponentials, and is seen by others, before the wait.
            release_keys(last, !(of_exponentials < 0.0f));
            end_values(sums, weights);
          });
    } else {
      moves = rows.template absorb<hides, Tiles::lazy, Tiles::raised>(scores, to_scores_.rate, factor);
      end_values(sums, weights);
    }
    constexpr bool seldom = Tiles::lazy == Lazy::by_row;  // scaled last, behind a branch that is seldom taken
    if constexpr (!seldom) sums.scale(moves, factor);
    keep_all(scores, kept);
    pack(weights, scores);
    if constexpr (seldom) sums.scale(moves, factor);
  }

  /// Each product after the softmax before: fewer registers.
  __device__ __forceinline__ void in_turn(Sums& sums, SoftmaxRows& rows, const Work& work, const RowLimits& limits,
                                          const RowTerms<Form>& terms, const KeyBlocks& blocks, int whole_begin,
                                          int whole_end, int unseen) {
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block) {
      Block scores;
      Weights weights;
      start_scores(scores);
      const auto added = terms.template at<Tiles::tile_n / 2>(block * Tiles::tile_n);
      const auto kept = terms.template kept<Tiles::tile_n / 2>(block * Tiles::tile_n);
      wgmma_wait_group<0>();
      end_scores(scores, block == blocks.begin);
      to_scores_.cap(scores);
      added.add_to(scores);
      if (block >= whole_end || block < whole_begin) limits.template apply<Form::mask>(scores, block * Tiles::tile_n);
      float factor[2];
      sums.scale(rows.template absorb<true, Tiles::lazy, Tiles::raised>(scores, to_scores_.rate, factor), factor);
      keep_all(scores, kept);
      pack(weights, scores);
      if (block == blocks.end - 1) clear_values_past(work.of.keys - block * Tiles::tile_n);
      if (block == blocks.begin) clear_values_before(unseen);
      start_values(sums, weights);
      end_values(sums, weights);
    }
  }

  /// Takes part in a tile of so many blocks of keys, of which it has no queries: in what other warps and turns wait for.
  /// Lanes meet before their warp releases a place: it may be filled again, and lanes that come later would wait for that.
  __device__ __forceinline__ void pass_by(int blocks) {
    if (blocks <= 0) return;
    mbarrier_wait(shared_.query().full, query_at_.parity);
    __syncwarp();
    query_at_.advance();
    release(shared_.query());
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      if (i > 0) {
        Turns<Tiles>::take(consumer_);
        Turns<Tiles>::pass(consumer_);
      }
      const Place keys = shared_.keys(keys_at_.slot), values = shared_.values(values_at_.slot);
      mbarrier_wait(keys.full, keys_at_.parity);
      __syncwarp();
      release_shared(keys);
      keys_at_.advance();
      mbarrier_wait(values.full, values_at_.parity);
      __syncwarp();
      release_shared(values);
      values_at_.advance();
    }
  }

  __device__ __forceinline__ void hold_queries() {
    const int row = consumer_ * warpgroup_rows + static_cast<int>(threadIdx.x) % warpgroup / 32 * 16;
#pragma unroll
    for (int step = 0; step < score_steps; ++step)
      Tiles::Query::load_a(queries_[step], shared_.query().data, row, step);
    release(shared_.query());
  }

  /// Queries by the next block of keys.
  __device__ __forceinline__ void start_scores(Block& scores) {
    using Query = typename Tiles::Query;
    using Key = typename Tiles::Key;
    const Place keys = shared_.keys(keys_at_.slot);
    const unsigned long long a = Query::along_columns(shared_.query().data + Query::at(consumer_ * warpgroup_rows, 0)),
                             b = Key::along_columns(keys.data);
    mbarrier_wait(keys.full, keys_at_.parity);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < score_steps; ++step) {
      const unsigned long long by = wgmma_descriptor_at(b, Key::at(0, step));
      if constexpr (Tiles::holds_queries) {
        wgmma_of_width<T, Tiles::tile_n>(scores, queries_[step], by, step > 0);
      } else {
        wgmma<T, T, Tiles::tile_n>(scores, wgmma_descriptor_at(a, Query::at(0, step)), by, step > 0);
      }
    }
    wgmma_commit_group();
  }
  /// Once the product has been waited for. `last`: of the tile.
  __device__ __forceinline__ void end_scores(Block& scores, bool last) {
    hold(scores);
    release_keys(last, true);
  }
  __device__ __forceinline__ void release_keys(bool last, bool ready) {
    if (ready) release_shared(shared_.keys(keys_at_.slot));
    keys_at_.advance();
    if (!Tiles::holds_queries && last) release(shared_.query());
  }

  static __device__ __forceinline__ void release_shared(const Place& place) {
    if constexpr (Tiles::blocks == 1) {
      release(place);
    } else {
      release_to<Tiles::blocks>(place);
    }
  }

  __device__ __forceinline__ void pack(Weights& weights, const Block& scores) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if constexpr (Tiles::transposes) {
        pack_byte_weights(weights[step], scores, step);
      } else {
        pack_weights<T>(weights[step], scores, step);
      }
    }
  }

  /// Weights by the next block of values, or by a part of its columns.
  __device__ __forceinline__ void start_values(Sums& sums, const Weights& weights, int part = 0) {
    using Value = typename Tiles::Value;
    using Transposed = typename Tiles::Transposed;
    const Place values = shared_.weighted(values_at_.slot);
    const unsigned long long b =
        Tiles::transposes ? Transposed::along_columns(values.data) : Value::along_rows(values.data);
    if (part == 0) mbarrier_wait(values.full, values_at_.parity);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if constexpr (Tiles::halves_values) {
        constexpr int columns = Form::value_dim / 2;
#pragma unroll
        for (int half = 0; half < 2; ++half)
          wgmma_of_width<T, columns, major::mn>(
              reinterpret_cast<float(&)[columns / 2]>(sums.all[half * (columns / 2)]), weights[step],
              wgmma_descriptor_at(b, step * Value::of_16_rows + Value::of_box_at(half * (Value::boxes / 2))), true);
      } else {
        wgmma_of_width<T, Sums::columns, Tiles::transposes ? major::k : major::mn>(
            sums.of_product(), weights[step],
            wgmma_descriptor_at(
                b, Tiles::transposes ? Transposed::at(part * Sums::columns, step) : step * Value::of_16_rows),
            !Tiles::promoted || step > 0);
      }
    }
    wgmma_commit_group();
  }
  /// Waits for the first part, and does those that are left.
  __device__ __forceinline__ void end_values(Sums& sums, const Weights& weights) {
    constexpr int parts = Form::value_dim / Sums::columns;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (part > 0) start_values(sums, weights, part);
      wgmma_wait_group<0>();
      hold(sums.of_product());
      if (part + 1 == parts) {
        release_shared(shared_.weighted(values_at_.slot));
        values_at_.advance();
      }
      sums.add_product(part);
    }
  }

  /// Zeros for the rows from `count` on of the next block of values, which are another sequence's: 0 * NaN would be NaN. Each
  /// warpgroup writes them for itself. What is transposed has them.
  __device__ __forceinline__ void clear_values_past(int count) {
    using Value = typename Tiles::Value;
    if constexpr (Form::layout != Layout::dense && !Tiles::transposes) {
      if (count >= Tiles::tile_n) return;
      const Place values = shared_.values(values_at_.slot);
      mbarrier_wait(values.full, values_at_.parity);
      clear_rows_from<Value>(count, memory_ + (values.data - shared_.base), 1 + consumer_);
    }
  }
  /// Likewise for its first `count` rows, whose pages may be others' by now.
  __device__ __forceinline__ void clear_values_before(int count) {
    using Value = typename Tiles::Value;
    if constexpr (Form::layout == Layout::paged && Form::mask == Mask::window && !Tiles::transposes) {
      if (count <= 0) return;
      const Place values = shared_.values(values_at_.slot);
      mbarrier_wait(values.full, values_at_.parity);
      clear_rows<Value>(0, count, memory_ + (values.data - shared_.base), 1 + consumer_);
    }
  }

  SharedLayout<Tiles> shared_;
  char* memory_;
  int consumer_;
  Scores<Form::soft_cap> to_scores_;
  unsigned queries_[score_steps][4];  // if Tiles::holds_queries
  RingPosition<1> query_at_;
  RingPosition<Tiles::stages> keys_at_, values_at_;
};

}  // namespace kiln::attention
