// attention_decode on the tensor cores of sm_80 and later: mma.sync, fed by rings of cp.async.
//
// A block has `key_warps` groups of warps. Each group has its own keys, every key_warps-th `tile_n` of them, its own ring of `stages` tiles
// of keys and values, and its own softmax, so that groups wait for nobody until a part ends. Its `row_warps` warps have 16 rows each: the
// queries of all heads that share a key head.
#pragma once

#include "common/attention/row_tile.cuh"
#include "common/dependent_launch.cuh"
#include "common/named_barrier.cuh"
#include "results.cuh"

namespace kiln::attention {

template <typename Form_, int tile_n_, int row_warps_, int key_warps_, int stages_>
struct DecodeTiling {
  using Form = Form_;
  static constexpr int tile_n = tile_n_, row_warps = row_warps_, key_warps = key_warps_, stages = stages_;
  static constexpr int tile_m = 16 * row_warps, block_n = tile_n * key_warps;
  static constexpr int group_threads = 32 * row_warps, threads = group_threads * key_warps;
  using Query = RowTile<Form::head_dim, tile_m>;
  using Key = RowTile<Form::head_dim, tile_n>;
  using Value = RowTile<Form::value_dim, tile_n>;
  // Shared memory: the search for a share, queries, and the rings, in whose place groups' sums are added up.
  static constexpr int search_bytes = 256, stage_bytes = Key::bytes + Value::bytes,
                       ring_bytes = key_warps * stages * stage_bytes;
  static constexpr int sums_pitch = Form::value_dim + 8, states_bytes = key_warps * tile_m * 8,
                       sums_bytes = states_bytes + key_warps * tile_m * sums_pitch * 4;
  static constexpr int bytes = search_bytes + Query::bytes + (ring_bytes > sums_bytes ? ring_bytes : sums_bytes);
  static_assert(tile_n % 16 == 0 && stages >= 2 && threads / 32 <= 16);
};

/// Starts the copies of the 16 rows from `row` on of a tile, `stride` elements apart; zeros for those outside of begin to end.
template <typename Tile, int dim, int threads, typename T>
__device__ __forceinline__ void copy_rows(unsigned tile, int row, const T* from, long long stride, int begin, int end,
                                          int thread) {
  constexpr int chunks = Tile::k_steps * 2, all = 16 * chunks;
#pragma unroll 4
  for (int i = 0; i < (all + threads - 1) / threads; ++i) {
    const int at = i * threads + thread, own = at / chunks, chunk = at % chunks;
    if (all % threads != 0 && at >= all) continue;
    const bool read = own >= begin && own < end && (dim % 16 == 0 || chunk * 8 < dim);
    cp_async_16(tile + Tile::offset(row + own, chunk), read ? from + own * stride + chunk * 8 : from, read);
  }
}

/// Keys and values of one key head, with strides in elements.
template <typename T>
struct Operand {
  const T* data;
  long long outer_stride, row_stride;

  __device__ __forceinline__ const T* at(const CacheRow& row) const {
    return data + row.outer * outer_stride + row.row * row_stride;
  }
};

/// Copies tiles of one group's keys and values of a part, in the order of the keys.
template <typename Tiling>
class TileCopy {
 public:
  using Form = typename Tiling::Form;
  using T = typename Form::T;

  /// `key`: the first of the group's first tile. All lanes of a warp call everything together.
  __device__ __forceinline__ TileCopy(const Operand<T>& keys, const Operand<T>& values,
                                      const CacheRows<Form::layout>& rows, const Extent& extent, int key)
      : keys_(keys), values_(values), rows_(rows), begin_(extent.begin), end_(extent.end), key_(key) {
    find();
  }

  __device__ __forceinline__ void next(unsigned to) {
    const int thread = static_cast<int>(threadIdx.x) % Tiling::group_threads;
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const CacheRow row = {__shfl_sync(full_warp, found_.outer, i), __shfl_sync(full_warp, found_.row, i)};
      const int first = key_ + i * 16;
      copy_rows<typename Tiling::Key, Form::head_dim, Tiling::group_threads>(
          to, i * 16, keys_.at(row), keys_.row_stride, begin_ - first, end_ - first, thread);
      copy_rows<typename Tiling::Value, Form::value_dim, Tiling::group_threads>(
          to + Tiling::Key::bytes, i * 16, values_.at(row), values_.row_stride, begin_ - first, end_ - first, thread);
    }
    key_ += Tiling::block_n;
    find();
  }

 private:
  static constexpr int pieces = Tiling::tile_n / 16;

  /// Lane i looks up the i-th 16 rows, of a tile that is copied later, so that no copy waits for the table. What no query sees is not
  /// looked up.
  __device__ __forceinline__ void find() {
    const int first = key_ + static_cast<int>(threadIdx.x) % 32 % pieces * 16;
    found_ = first < end_ && first + 16 > begin_ ? rows_.at(first) : CacheRow{0, 0};
  }

  Operand<T> keys_, values_;
  CacheRows<Form::layout> rows_;
  int begin_, end_, key_;
  CacheRow found_;
};

/// Adds one tile of keys and values to a warp's 16 rows.
template <typename Tiling, int sums_count>
__device__ __forceinline__ void absorb_tile(float (&sums)[sums_count], SoftmaxRows& rows, unsigned queries,
                                            unsigned tile, int warp_row,
                                            const Scores<Tiling::Form::soft_cap>& to_scores, const RowLimits& limits,
                                            int key) {
  using T = typename Tiling::Form::T;
  constexpr int tile_n = Tiling::tile_n;
  float scores[tile_n / 2] = {};
#pragma unroll
  for (int step = 0; step < Tiling::Key::k_steps; ++step) {
    unsigned a[4], b[4];
    Tiling::Query::load_a(a, queries, warp_row, step);
#pragma unroll
    for (int i = 0; i < tile_n / 16; ++i) {
      Tiling::Key::load_b(b, tile, i * 16, step);
      multiply<T>(scores, i, a, b);
    }
  }
  to_scores.cap(scores);
  limits.template apply<Tiling::Form::mask>(scores, key);
  float factor[2];
  if (rows.template absorb<true, true>(scores, to_scores.rate, factor)) scale_rows(sums, factor);
#pragma unroll
  for (int step = 0; step < tile_n / 16; ++step) {
    unsigned a[4], b[4];
    pack_weights<T>(a, scores, step);
#pragma unroll
    for (int i = 0; i < Tiling::Value::k_steps; ++i) {
      Tiling::Value::load_b_trans(b, tile + Tiling::Key::bytes, step * 16, i);
      multiply<T>(sums, i, a, b);
    }
  }
}

/// Puts a warp's sums and states where all threads of the block find them.
template <typename Tiling, int sums_count>
__device__ __forceinline__ void give_sums(char* memory, const float (&sums)[sums_count], const SoftmaxRows& rows,
                                          float rate, int group, int warp_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = group * Tiling::tile_m + warp_row + lane / 4 + 8 * half;
    const float sum = warp_reduce<4>(rows.sum[half], add{});
    if (lane % 4 == 0) reinterpret_cast<RowState*>(memory)[row] = {rows.largest[half] * rate, sum};
    float* const to = reinterpret_cast<float*>(memory + Tiling::states_bytes) + row * Tiling::sums_pitch + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < Tiling::Form::value_dim / 8; ++i)
      *reinterpret_cast<float2*>(to + i * 8) = make_float2(sums[i * 4 + half * 2], sums[i * 4 + half * 2 + 1]);
  }
}

/// Adds up what groups gave, in their order: as results, or, where other blocks have keys of the plane too, as a partial.
template <typename Tiling>
__device__ __forceinline__ void end_part(const char* memory, const Part& part, const PlaneRows& plane_rows,
                                         const Results<typename Tiling::Form::T>& results,
                                         const Partials<Tiling::tile_m, Tiling::Form::value_dim>& partials) {
  constexpr int columns = 4, chunks = Tiling::Form::value_dim / columns;
  const auto* const states = reinterpret_cast<const RowState*>(memory);
  const auto* const sums = reinterpret_cast<const float*>(memory + Tiling::states_bytes);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Tiling::tile_m * chunks; i += Tiling::threads) {
    const int row = i / chunks, chunk = i % chunks;
    const PlaneRows::At at = plane_rows.at(part.plane, row, Tiling::tile_m);
    if (!at.exists) continue;
    RowState state = {-infinity(), 0};
#pragma unroll
    for (int group = 0; group < Tiling::key_warps; ++group)
      state.largest = fmaxf(state.largest, states[group * Tiling::tile_m + row].largest);
    vec<float, columns> all = {};
#pragma unroll
    for (int group = 0; group < Tiling::key_warps; ++group) {
      const RowState of_group = states[group * Tiling::tile_m + row];
      const float factor = of_group.factor(state.largest);
      const auto from = load<columns>(sums + (group * Tiling::tile_m + row) * Tiling::sums_pitch + chunk * columns);
      state.sum += factor * of_group.sum;
#pragma unroll
      for (int j = 0; j < columns; ++j) all.at[j] += factor * from.at[j];
    }
    if (part.slot < 0) {
      const RowEnd end = results.template finish<Tiling::Form::sinks>(state, part.sequence, at, chunk == 0);
#pragma unroll
      for (int j = 0; j < columns; ++j) all.at[j] *= end.factor;
      results.store(part.sequence, at, chunk * columns, all);
    } else {
      store(partials.sums_at(part.slot, row) + chunk * columns, all);
      if (chunk == 0) partials.state_at(part.slot, row) = state;
    }
  }
}

}  // namespace kiln::attention

/// grid (any), block (32 * row_warps * key_warps); dynamic shared memory DecodeTiling::bytes. q, k, v and out begin at multiples of 16 bytes,
/// as do their rows. Strides of k and v: outer, between sequences or pages. `partial_sums`, `partial_states`: as Parts counts slots; cuts: one
/// for each block. A block takes `least` blocks of keys or more. lse may be null.
template <typename Form, int tile_n, int row_warps, int key_warps, int stages, int resident>
__global__ void __launch_bounds__(32 * row_warps * key_warps, resident)
    attention_decode_mma(const typename Form::T* q, const typename Form::T* k, const typename Form::T* v,
                         typename Form::T* out, float* lse, const float* sinks, const int* key_lengths,
                         const int* block_table, float* partial_sums, void* partial_states, void* cuts,
                         kiln::axis_length batch, kiln::axis_length keys, int queries, int heads, int key_heads,
                         long long q_batch_stride, long long q_row_stride, long long q_head_stride,
                         long long k_outer_stride, long long k_row_stride, long long k_head_stride,
                         long long v_outer_stride, long long v_row_stride, long long v_head_stride,
                         long long out_batch_stride, long long out_row_stride, long long out_head_stride,
                         long long lse_batch_stride, long long lse_head_stride, long long table_stride, int page_size,
                         int pages, float scale, float cap, long long window_left, int least) {
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
      find_share<Tiling::threads>(all, Tiling::block_n, planes, least, reinterpret_cast<long long*>(memory));
  const Results<typename Form::T> results = {
      out, lse, sinks, out_batch_stride, out_row_stride, out_head_stride, lse_batch_stride, lse_head_stride};
  const Partials<Tiling::tile_m, Form::value_dim> partials = {partial_sums, static_cast<RowState*>(partial_states)};
  const Scores<Form::soft_cap> to_scores(scale, cap);

  Parts<Form::invariant, Form::mask> parts(all, Tiling::block_n, planes, share);
  Part part;
  while (parts.next(part)) {
    const int key_head = plane_rows.key_head(part.plane);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < Tiling::tile_m * Tiling::Query::k_steps * 2; i += Tiling::threads) {
      const int row = i / (Tiling::Query::k_steps * 2), chunk = i % (Tiling::Query::k_steps * 2);
      const PlaneRows::At at = plane_rows.at(part.plane, row, Tiling::tile_m);
      const bool read = at.exists && chunk * 8 < Form::head_dim;
      const auto* const from =
          q + part.sequence * q_batch_stride + at.query * q_row_stride + at.head * q_head_stride + chunk * 8;
      cp_async_16(tile_q + Tiling::Query::offset(row, chunk), read ? from : q, read);
    }
    cp_async_commit();

    // The group's tiles of the part: those that begin before the last key.
    const int key = (part.extent.first + part.from) * Tiling::block_n + group * tile_n;
    const int tiles = min(part.to - part.from, ceil_div(max(part.extent.end - key, 0), Tiling::block_n));
    TileCopy<Tiling> copy({k + key_head * k_head_stride, k_outer_stride, k_row_stride},
                          {v + key_head * v_head_stride, v_outer_stride, v_row_stride},
                          {part.sequence, block_table + part.sequence * table_stride, page_size, pages}, part.extent,
                          key);
#pragma unroll
    for (int i = 0; i < stages - 1; ++i) {
      if (i < tiles) copy.next(ring + i * Tiling::stage_bytes);
      cp_async_commit();
    }
    cp_async_wait<stages - 1>();
    __syncthreads();  // all queries are there

    const Visible<Form::mask> visible = all.visible(part.sequence);
    RowLimits limits(visible, 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
      const int query = plane_rows.at(part.plane, row, Tiling::tile_m).query;
      limits.begin[half] = visible.begin(query);
      limits.end[half] = visible.end(query);
    }
    SoftmaxRows rows;
    float sums[Tiling::Value::k_steps * 8] = {};
    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      cp_async_wait<stages - 2>();
      if constexpr (row_warps == 1) {
        __syncwarp();
      } else {
        named_barrier_sync(1 + group, Tiling::group_threads);
      }
      // The slot that was read last is free.
      if (i + stages - 1 < tiles) copy.next(ring + (slot == 0 ? stages - 1 : slot - 1) * Tiling::stage_bytes);
      cp_async_commit();
      absorb_tile<Tiling>(sums, rows, tile_q, ring + slot * Tiling::stage_bytes, warp_row, to_scores, limits,
                          key + i * Tiling::block_n);
      slot = slot + 1 == stages ? 0 : slot + 1;
    }
    cp_async_wait<0>();
    __syncthreads();  // rings are free
    char* const exchange = memory + Tiling::search_bytes + Tiling::Query::bytes;
    give_sums<Tiling>(exchange, sums, rows, to_scores.rate, group, warp_row);
    __syncthreads();
    end_part<Tiling>(exchange, part, plane_rows, results, partials);
    __syncthreads();
  }
  if constexpr (Form::invariant == Invariant::no)
    if (threadIdx.x == 0) static_cast<Cut*>(cuts)[blockIdx.x] = parts.cut_at_end(part);
}

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
