// A warpgroup of attention_backward_keys_wgmma that multiplies: its part of a tile of keys by tile after tile of queries.
#pragma once

#include "common/bulk_add.cuh"
#include "common/stmatrix.cuh"
#include "common/wgmma_widths.cuh"
#include "wgmma_copy.cuh"

namespace kiln::attention {

template <typename Tiles>
class WarpgroupKeys {
 public:
  using Form = typename Tiles::Form;
  using T = typename Form::T;
  using Layout = BackwardLayout<Tiles>;

  __device__ __forceinline__ WarpgroupKeys(const Layout& shared, char* memory, int consumer, const Work& work,
                                           const Visible<Form::mask>& visible, const Scores<Form::soft_cap>& to_scores,
                                           const ScoreInputs<T>& inputs)
      : shared_(shared),
        memory_(memory),
        consumer_(consumer),
        work_(work),
        visible_(visible),
        to_scores_(to_scores),
        inputs_(inputs),
        key_row_(Tiles::split ? 0 : consumer * warpgroup_rows),
        thread_row_(static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        own_query_(Tiles::split ? consumer * Tiles::own_queries : 0),
        limits_(visible, work.of.queries, work.row + key_row_ + thread_row_) {}

  __device__ __forceinline__ void run(QueryTiles at, int count) {
    mbarrier_wait(shared_.keys().full, 0);
    if constexpr (Form::layout == attention::Layout::packed && Tiles::sums_dq)
      if (work_.of.keys - work_.row < Tiles::tile_n)
        clear_rows_from<typename Tiles::Key>(work_.of.keys - work_.row, memory_, 2 + consumer_);
    if (count == 0) return;
    RingPosition<Tiles::stages> stage;
    Products scores;
    if constexpr (is_crowded<Tiles>) say_read();
    if constexpr (ahead || is_crowded<Tiles>) {
      start_scores(scores, stage);
      wgmma_wait_group<0>();
      hold(scores);
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i, at.advance()) {
      if constexpr (!ahead && !is_crowded<Tiles>) start_scores(scores, stage);
      RingPosition<Tiles::stages> next = stage;
      if (i + 1 < count)
        next.advance();  // else the last tile's once more: products under a condition would be serialised
      if constexpr (is_crowded<Tiles>) {
        multiply_crowded(scores, at, stage, i, next);
      } else {
        multiply_tile(scores, at, stage, i % 2, [&] {
          if constexpr (ahead) start_scores(scores, next);
        });
      }
      if constexpr (ahead || is_crowded<Tiles>) hold(scores);
      stage = next;
    }
    if constexpr (is_crowded<Tiles>) await_read();
  }

  /// At the tile's first key.
  __device__ __forceinline__ void store(T* dk, long long k_row_stride, T* dv, long long v_row_stride, float scale) {
    const int part = Tiles::split ? consumer_ : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long row = key_row_ + thread_row_ + 8 * half;
      const bool exists = work_.row + row < work_.of.keys;
      store_part<Form::head_dim>(dk + row * k_row_stride + part * Tiles::own_head, dk_, half, scale, exists);
      store_part<Form::value_dim>(dv + row * v_row_stride + part * Tiles::own_value, dv_, half,
                                  kept_scale<Form>(inputs_) / scale_of_weights(), exists);
    }
  }

  /// Adds to sums of both, rows of floats under swizzle_sums, which begin at the tile's first key. All warpgroups that multiply call it.
  __device__ __forceinline__ void add(float* dk, float* dv, float scale) {
    constexpr int of_values = Tiles::tile_n * Form::head_dim * 4;
    static_assert(of_values + Tiles::tile_n * Form::value_dim * 4 <= Layout::sum);
    named_barrier_sync(1, Tiles::consumers * warpgroup);  // all have read what lies there
    put_gradients<Form::head_dim>(dk_, 0, scale);
    put_gradients<Form::value_dim>(dv_, of_values, kept_scale<Form>(inputs_) / scale_of_weights());
    meet();
    if (consumer_ != 0 || threadIdx.x % warpgroup != 0) return;
    const int rows = min(Tiles::tile_n, work_.of.keys - work_.row);
    bulk_add(dk, shared_.base, rows * Form::head_dim * 4);
    bulk_add(dv, shared_.base + of_values, rows * Form::value_dim * 4);
    tma_store_commit();
    tma_store_wait_read<0>();
  }

 private:
  static constexpr int held = Tiles::own_queries / 2, steps = Tiles::tile_m / 16, own_steps = Tiles::own_queries / 16;
  /// Registers are few. Weights are then multiplied once their gradients are there: they would be held twice, rounded and as floats.
  static constexpr bool wide = held > 32;
  /// The next tile's scores are begun before this one's end, where there is a place for its queries, and registers for them.
  static constexpr bool ahead = Tiles::stages > 1 && !Tiles::split && !wide;
  using Products = float[held];
  static __device__ __forceinline__ constexpr float scale_of_weights() {
    return is_crowded<Tiles> ? weight_scale<f16> : weight_scale<T>;
  }

  /// Queries by keys, once the queries are there.
  __device__ __forceinline__ void start_scores(Products& scores, const RingPosition<Tiles::stages>& stage) {
    const Place queries = shared_.queries(stage.slot);
    mbarrier_wait(queries.full, stage.parity);
    start_products<Form::head_dim, typename Tiles::Key, typename Tiles::Query>(scores, shared_.keys().data,
                                                                               queries.data);
  }

  /// `scores` are there, or (not `ahead`) begun; `start_next` begins those of the next tile.
  template <typename StartNext>
  __device__ __forceinline__ void multiply_tile(Products& scores, const QueryTiles& at,
                                                const RingPosition<Tiles::stages>& stage, int buffer,
                                                StartNext start_next) {
    const Place queries = shared_.queries(stage.slot), gradients = shared_.gradients(stage.slot);
    const FactsApart facts = shared_.facts_of(memory_, stage.slot, own_query_);
    mbarrier_wait(gradients.full, stage.parity);
    if constexpr (Form::layout == attention::Layout::packed) {
      if (work_.of.queries - at.row < Tiles::tile_m) {  // others' rows may hold NaN
        clear<typename Tiles::Query>(queries, work_.of.queries - at.row);
        clear<typename Tiles::Gradient>(gradients, work_.of.queries - at.row);
      }
    }
    const int key = work_.row + key_row_ + thread_row_;
    const auto terms =
        terms_of_keys<Form, held>(inputs_, to_scores_.rate, visible_, work_.of, at.head, key, at.row + own_query_);
    const auto kept = kept_of<Form, false, held>(inputs_, work_.of, at.head, key, at.row + own_query_);
    Products changes;
    start_products<Form::value_dim, typename Tiles::Value, typename Tiles::Gradient>(
        changes, shared_.keys().data + Layout::value, gradients.data);
    TileGradient<T, Form::soft_cap, held> gradient;
    const bool whole = all_seen(visible_, work_.of.queries, at.row + own_query_, Tiles::own_queries,
                                work_.row + key_row_, warpgroup_rows);
    if constexpr (!ahead) {
      wgmma_wait_group<1>();
      hold(scores);
    }
    gradient.take_weights(scores, to_scores_, terms, facts);
    if (!whole) limits_.apply(gradient.weights, at.row + own_query_);
    if constexpr (Tiles::split) {
      wgmma_wait_group<0>();
      hold(changes);
      take_gradients(changes, gradient, kept, facts, whole, at.row);
      unsigned packed[own_steps][4];
      keep_all(gradient.weights, kept);
      pack(packed, gradient.weights);
      put(Layout::weights, buffer, packed);
      pack(packed, changes);
      put(Layout::changes, buffer, packed);
      meet();
      wgmma_fence();
      add_shared<typename Tiles::Gradient, Tiles::own_value>(dv_, Layout::weights, buffer, gradients.data);
      finish(queries, gradients, buffer, start_next,
             [&] { add_shared<typename Tiles::Query, Tiles::own_head>(dk_, Layout::changes, buffer, queries.data); });
    } else {
      unsigned weights[steps][4], packed[steps][4];
      const auto add_values = [&] {
        pack(weights, gradient.weights, kept);
        wgmma_fence();
        add_own<typename Tiles::Gradient, Form::value_dim>(dv_, weights, gradients.data);
      };
      if constexpr (!wide) add_values();
      wgmma_wait_group<wide ? 0 : 1>();
      hold(changes);
      take_gradients(changes, gradient, kept, facts, whole, at.row);
      pack(packed, changes);
      if constexpr (Tiles::sums_dq) put(Layout::changes, buffer, packed);
      if constexpr (wide) add_values();
      if constexpr (Tiles::sums_dq) meet();
      wgmma_fence();
      finish(queries, gradients, buffer, start_next,
             [&] { add_own<typename Tiles::Query, Form::head_dim>(dk_, packed, queries.data); });
    }
  }

  /// As multiply_tile where registers are few: weights are multiplied from shared memory, and wait in f16 for their
  /// gradients, times 4096. `scores` are there, and become those of `next`.
  __device__ __forceinline__ void multiply_crowded(Products& scores, const QueryTiles& at,
                                                   const RingPosition<Tiles::stages>& stage, int i,
                                                   const RingPosition<Tiles::stages>& next) {
    constexpr int bits = weight_bits<f16> - weight_bits<T>;
    const Place queries = shared_.queries(stage.slot), gradients = shared_.gradients(0);
    const FactsTimes<bits> facts{shared_.facts_of(memory_, stage.slot, 0)};
    const int left = work_.of.queries - at.row;  // others' rows may hold NaN
    if constexpr (Form::layout == attention::Layout::packed)
      if (left < Tiles::tile_m) clear<typename Tiles::Query>(queries, left);
    const int key = work_.row + key_row_ + thread_row_;
    const auto terms = terms_of_keys<Form, held>(inputs_, to_scores_.rate, visible_, work_.of, at.head, key, at.row);
    const auto kept = kept_of<Form, false, held>(inputs_, work_.of, at.head, key, at.row);
    const bool whole =
        all_seen(visible_, work_.of.queries, at.row, Tiles::tile_m, work_.row + key_row_, warpgroup_rows);
    TileGradient<T, Form::soft_cap, held> gradient;
    gradient.take_weights(scores, to_scores_, terms, facts);
    if (!whole) limits_.apply(gradient.weights, at.row);
    unsigned weights[own_steps][4], packed[own_steps][4];
    pack(packed, gradient.weights);
    put(Layout::weights, 0, packed);
#pragma unroll
    for (int step = 0; step < own_steps; ++step) pack_weights<f16>(weights[step], gradient.weights, step);
    meet_own();
    mbarrier_wait(gradients.full, i % 2);
    if constexpr (Form::layout == attention::Layout::packed)
      if (left < Tiles::tile_m) clear<typename Tiles::Gradient>(gradients, left);
    Products changes;
    start_products<Form::value_dim, typename Tiles::Value, typename Tiles::Gradient>(
        changes, shared_.keys().data + Layout::value, gradients.data);
    wgmma_fence();
    add_shared<typename Tiles::Gradient, Form::value_dim>(dv_, Layout::weights, 0, gradients.data);
    wgmma_wait_group<1>();  // all but dv
    hold(changes);
    unpack(gradient.weights, weights);
    gradient.take_gradients(changes, kept, kept_scale<Form>(inputs_) / (1 << bits), facts);
    if (!whole) limits_.apply(changes, at.row);
    pack(packed, changes);
    await_read();
    put(Layout::changes, 0, packed);
    wgmma_wait_group<0>();
    hold(dv_);
    release(gradients);
    if constexpr (Tiles::sums_dq) {
      meet();
    } else {
      meet_own();
    }
    [[maybe_unused]] float dq[Tiles::dq_columns / 2];
    wgmma_fence();
    if constexpr (Tiles::sums_dq) multiply_queries(dq, 0);
    add_shared<typename Tiles::Query, Form::head_dim>(dk_, Layout::changes, 0, queries.data);
    if constexpr (Tiles::sums_dq) {
      wgmma_wait_group<1>();
      hold(dq);
      say_read();
      put_sums(dq, i % 2);
    }
    start_scores(scores, next);
    wgmma_wait_group<0>();
    hold(dk_);
    release(queries);
  }

  /// The rows of both that are past the sequence's end become zeros.
  template <typename Tile>
  __device__ __forceinline__ void clear(const Place& place, int count) {
    clear_rows_from<Tile>(count, memory_ + (place.data - shared_.base), 2 + consumer_);
  }

  /// This warpgroup's keys (or values) by its queries (or gradients), over all columns.
  template <int columns, typename A, typename B>
  __device__ __forceinline__ void start_products(Products& products, unsigned a_tile, unsigned b_tile) {
    const unsigned long long a = A::along_columns(a_tile + A::at(key_row_, 0)),
                             b = B::along_columns(b_tile + B::at(own_query_, 0));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < (columns + 15) / 16; ++step)
      wgmma<T, T, Tiles::own_queries>(products, wgmma_descriptor_at(a, A::at(0, step)),
                                      wgmma_descriptor_at(b, B::at(0, step)), step > 0);
    wgmma_commit_group();
  }

  template <typename Kept>
  __device__ __forceinline__ void take_gradients(Products& changes,
                                                 const TileGradient<T, Form::soft_cap, held>& gradient,
                                                 const Kept& kept, const FactsApart& facts, bool whole, int row) {
    gradient.take_gradients(changes, kept, kept_scale<Form>(inputs_), facts);
    if (!whole) limits_.apply(changes, row + own_query_);
  }

  __device__ __forceinline__ void pack(unsigned (&to)[own_steps][4], const Products& values) {
#pragma unroll
    for (int step = 0; step < own_steps; ++step) pack_weights<T>(to[step], values, step);
  }
  /// The weights that pack_weights rounded to f16.
  __device__ __forceinline__ void unpack(Products& to, const unsigned (&values)[own_steps][4]) {
#pragma unroll
    for (int i = 0; i < held; i += 2) {
      const vec<f16, 2> two = __builtin_bit_cast(vec<f16, 2>, values[i / 8][i / 2 % 4]);
      to[i] = to_float(two.at[0]);
      to[i + 1] = to_float(two.at[1]);
    }
  }
  template <typename Kept>
  __device__ __forceinline__ void pack(unsigned (&to)[own_steps][4], const Products& values, const Kept& kept) {
    if constexpr (Form::dropout == Dropout::none) {
      pack(to, values);
    } else {
      Products left;
#pragma unroll
      for (int i = 0; i < held; ++i) left[i] = kept.keep(values[i], i);
      pack(to, left);
    }
  }
  /// Puts what lies as scores do where wgmma reads it: keys along rows.
  __device__ __forceinline__ void put(int offset, int buffer, const unsigned (&values)[own_steps][4]) {
    using Weights = typename Tiles::Weights;
    constexpr unsigned chunks = Weights::swizzle / 16;  // of a box's row
    const unsigned lane = threadIdx.x % 32, row = key_row_ + threadIdx.x % warpgroup / 32 * 16 + lane % 16,
                   own = (lane / 16 ^ row % chunks) * 16;  // of the two chunks of a step
    const unsigned tile = shared_.base + offset + buffer * Weights::bytes + row * Weights::swizzle;
#pragma unroll
    for (int step = 0; step < own_steps; ++step) {
      const unsigned chunk = (Tiles::split ? static_cast<unsigned>(own_query_) / 8 : 0) + step * 2;
      stmatrix_x4(tile + chunk / chunks * Weights::box_bytes + (chunk % chunks * 16 ^ own), values[step]);
    }
  }
  /// All warpgroups that multiply have put theirs, and may read those of others.
  __device__ __forceinline__ void meet() {
    fence_proxy_async();
    named_barrier_sync(1, Tiles::consumers * warpgroup);
  }

  /// This warpgroup's warps have put theirs.
  __device__ __forceinline__ void meet_own() {
    fence_proxy_async();
    named_barrier_sync(2 + consumer_, warpgroup);
  }
  /// This warpgroup has multiplied for dq what both have put, and will put what comes next after await_read.
  __device__ __forceinline__ void say_read() {
    if constexpr (Tiles::sums_dq) named_barrier_arrive(4 + (consumer_ ^ 1), 2 * warpgroup);
  }
  /// The other warpgroup has.
  __device__ __forceinline__ void await_read() {
    if constexpr (Tiles::sums_dq) named_barrier_sync(4 + consumer_, 2 * warpgroup);
  }

  /// sums += weights in registers times rows of b.
  template <typename B, int n>
  __device__ __forceinline__ void add_own(float (&sums)[n / 2], const unsigned (&weights)[steps][4], unsigned b_tile) {
    const unsigned long long b = B::along_rows(b_tile);
#pragma unroll
    for (int step = 0; step < steps; ++step)
      wgmma_of_width<T, n, major::mn>(sums, weights[step], wgmma_descriptor_at(b, step * 16 * B::swizzle), true);
    wgmma_commit_group();
  }
  /// Adds products by weights in shared memory, in this warpgroup's columns of b.
  template <typename B, int n>
  __device__ __forceinline__ void add_shared(float (&sums)[n / 2], int offset, int buffer, unsigned b_tile) {
    using Weights = typename Tiles::Weights;
    const int part = Tiles::split ? consumer_ : 0;
    const unsigned long long a = Weights::along_columns(shared_.base + offset + buffer * Weights::bytes +
                                                        Weights::at(key_row_, 0)),
                             b = B::along_rows(b_tile + part * (n / B::box_columns) * B::box_bytes);
#pragma unroll
    for (int step = 0; step < steps; ++step)
      wgmma<T, T, n, major::k, major::mn>(sums, wgmma_descriptor_at(a, Weights::at(0, step)),
                                          wgmma_descriptor_at(b, step * 16 * B::swizzle), true);
    wgmma_commit_group();
  }

  /// The products for dq, by `add_keys` those for dk, and the next tile's scores; dq's part is put in its place meanwhile.
  template <typename StartNext, typename AddKeys>
  __device__ __forceinline__ void finish(const Place& queries, const Place& gradients, int buffer, StartNext start_next,
                                         AddKeys add_keys) {
    [[maybe_unused]] float dq[Tiles::dq_columns / 2];
    if constexpr (Tiles::sums_dq) multiply_queries(dq, buffer);
    add_keys();
    wgmma_wait_group<1>();  // all but dk
    hold(dv_);
    release(gradients);
    if constexpr (Tiles::sums_dq) {
      hold(dq);
      put_sums(dq, buffer);
    }
    start_next();
    wgmma_wait_group<0>();
    hold(dk_);
    release(queries);
  }

  // This warpgroup's queries and columns of a tile's part of dq.
  __device__ __forceinline__ int query_block() const { return Tiles::query_blocks == 1 ? 0 : consumer_; }
  __device__ __forceinline__ int query_part() const { return Tiles::query_blocks == 1 ? consumer_ : 0; }

  __device__ __forceinline__ void multiply_queries(float (&dq)[Tiles::dq_columns / 2], int buffer) {
    using Key = typename Tiles::Key;
    using Weights = typename Tiles::Weights;
    constexpr int n = Tiles::dq_columns;
    const unsigned long long a = Weights::along_rows(shared_.base + Layout::changes + buffer * Weights::bytes +
                                                     query_block() * Weights::box_bytes),
                             b = Key::along_rows(shared_.base + query_part() * (n / Key::box_columns) * Key::box_bytes);
#pragma unroll
    for (int step = 0; step < Tiles::tile_n / 16; ++step)
      wgmma<T, T, n, major::mn, major::mn>(dq, wgmma_descriptor_at(a, step * 16 * Weights::swizzle),
                                           wgmma_descriptor_at(b, step * 16 * Key::swizzle), step > 0);
    wgmma_commit_group();
  }
  /// Puts this warpgroup's part of dq where add_tiles reads it, once that has read the part before.
  __device__ __forceinline__ void put_sums(const float (&dq)[Tiles::dq_columns / 2], int buffer) {
    const Place part = shared_.sums();
    const int row = query_block() * warpgroup_rows + thread_row_;
    mbarrier_wait(part.empty, buffer ^ 1);
    put_floats<Form::head_dim, Tiles::dq_parts>(
        dq, Layout::sum + (row * Form::head_dim + query_part() * Tiles::dq_columns) * 4, work_.of.first_query + row,
        query_part());
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(part.full);
  }

  /// This warpgroup's part of dk or dv, at `offset`.
  template <int dim, int n>
  __device__ __forceinline__ void put_gradients(float (&values)[n], int offset, float scale) {
#pragma unroll
    for (int i = 0; i < n; ++i) values[i] *= scale;
    const int row = key_row_ + thread_row_, part = Tiles::split ? consumer_ : 0;
    put_floats<dim, Tiles::parts>(values, offset + (row * dim + part * n * 2) * 4, work_.of.first_key + row, part);
  }
  /// As store_row, of this warpgroup's part of `dim` columns, at its first.
  template <int dim, int n>
  __device__ __forceinline__ void store_part(T* to, const float (&sums)[n], int half, float factor, bool exists) {
    constexpr int first = dim < 2 * n ? dim : 2 * n, second = dim - first;
    if (!Tiles::split || first == second || consumer_ == 0) {
      store_row<T>(to, reinterpret_cast<const float(&)[first / 2]>(sums), half, factor, exists);
    } else if constexpr (second > 0) {
      store_row<T>(to, reinterpret_cast<const float(&)[second / 2]>(sums), half, factor, exists);
    }
  }
  /// Puts a thread's `part` of rows of `dim` floats under swizzle_sums, the first of them at `offset`. `row` is its number in the tensor, less
  /// multiples of 4: tiles begin at these.
  template <int dim, int parts, int n>
  __device__ __forceinline__ void put_floats(const float (&values)[n], unsigned offset, int row, int part) {
    const unsigned own = offset + threadIdx.x % 4 * 8;
    const int columns = parts * n * 2 == dim ? dim : dim - part * n * 2;  // from the part's first on
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      if (i * 2 >= columns) continue;
      // Needs four addresses where a part of a row is whole lines of shared memory.
      char* const to = is_crowded<Tiles> && n * 8 % 128 == 0
                           ? memory_ + (own + swizzle_sums<dim>(i % 16 * 8, row)) + i / 16 * 128
                           : memory_ + (n * 8 % 128 == 0 ? own + i / 16 * 128 + swizzle_sums<dim>(i % 16 * 8, row)
                                                         : swizzle_sums<dim>(own + i * 8, row));
      *reinterpret_cast<float2*>(to) = make_float2(values[i], values[i + 1]);
      *reinterpret_cast<float2*>(to + 8 * dim * 4) = make_float2(values[i + 2], values[i + 3]);
    }
  }

  Layout shared_;
  char* memory_;
  int consumer_;
  Work work_;
  Visible<Form::mask> visible_;
  Scores<Form::soft_cap> to_scores_;
  ScoreInputs<T> inputs_;
  int key_row_, thread_row_;  // the warpgroup's first key in the tile, and the thread's among its own
  int own_query_;             // the first of the tile's queries that this warpgroup takes
  KeyLimits limits_;
  float dk_[Tiles::own_head / 2] = {}, dv_[Tiles::own_value / 2] = {};
};

}  // namespace kiln::attention
