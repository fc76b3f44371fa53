// What warps of attention_decode_mma do with tiles of keys and values: start their copies, multiply them, add up what groups of warps have.
#pragma once

#include "byte_tile.cuh"
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
  static constexpr int packed = 2 / sizeof(typename Form::Cache);  // elements in 16 bits
  using Key = RowTile<Form::head_dim / packed, tile_n>;
  using Value = RowTile<Form::value_dim / packed, tile_n>;
  // Shared memory: the search for a share, queries, and the rings, in whose place groups' sums are added up.
  static constexpr int search_bytes = 384, stage_bytes = Key::bytes + Value::bytes,
                       ring_bytes = key_warps * stages * stage_bytes;
  static constexpr int sums_pitch = Form::value_dim + 8, states_bytes = key_warps * tile_m * 8,
                       sums_bytes = states_bytes + key_warps * tile_m * sums_pitch * 4;
  static constexpr int bytes = search_bytes + Query::bytes + (ring_bytes > sums_bytes ? ring_bytes : sums_bytes);
  static_assert(tile_n % 16 == 0 && stages >= 2 && threads / 32 <= 16);
};

/// Rows one after another.
struct InOrder {
  __device__ __forceinline__ int of(int row) const { return row; }
};

/// Rows that lie anywhere: lane `first` + i of each warp has looked up where the i-th does. All lanes of a warp call of() together.
struct LookedUp {
  int found, first;

  __device__ __forceinline__ int of(int row) const { return __shfl_sync(full_warp, found, first + row); }
};

/// Starts the copies of the 16 rows from `row` on of a tile. Row i lies places.of(i) * stride elements past `from`; those outside of begin to
/// end are zero, and so are columns past `dim`, up to the tile's. All lanes of a warp start the same number of copies.
template <typename Tile, int dim, int threads, typename T, typename Places>
__device__ __forceinline__ void copy_rows(unsigned tile, int row, const T* from, long long stride, const Places& places,
                                          int begin, int end, int thread) {
  if constexpr (dim * sizeof(T) % 16 != 0) {
    copy_rows_by_eights<Tile, dim, threads>(tile, row, from, stride, places, begin, end, thread);
    return;
  }
  constexpr int chunks = Tile::k_steps * 2, all = 16 * chunks, each = 16 / sizeof(T);
  static_assert(all % 32 == 0 && threads % 32 == 0);
#pragma unroll 4
  for (int i = 0; i < (all + threads - 1) / threads; ++i) {
    const int at = i * threads + thread, own = at / chunks, chunk = at % chunks;
    if (all % threads != 0 && at >= all) continue;
    const bool read = own >= begin && own < end && (dim % (2 * each) == 0 || chunk * each < dim);
    const int place = places.of(own);
    cp_async_16(tile + Tile::offset(row + own, chunk), read ? from + place * stride + chunk * each : from, read);
  }
}

/// Starts the copies of a plane's queries; zeros for rows that it does not have.
template <typename Tiling, typename T>
__device__ __forceinline__ void copy_queries(unsigned tile, const T* q, long long row_stride, long long head_stride,
                                             const PlaneRows& plane_rows, int plane) {
  constexpr int chunks = Tiling::Query::k_steps * 2;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Tiling::tile_m * chunks; i += Tiling::threads) {
    const int row = i / chunks, chunk = i % chunks;
    const PlaneRows::At at = plane_rows.at(plane, row, Tiling::tile_m);
    const bool read = at.exists && chunk * 8 < Tiling::Form::head_dim;
    cp_async_16(tile + Tiling::Query::offset(row, chunk),
                read ? q + at.query * row_stride + at.head * head_stride + chunk * 8 : q, read);
  }
}

/// What a thread's two rows see.
template <typename Tiling, Mask mask>
__device__ __forceinline__ RowLimits limits_of(const Visible<mask>& visible, const PlaneRows& plane_rows, int plane,
                                               int warp_row) {
  RowLimits limits(visible, 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    const int query = plane_rows.at(plane, row, Tiling::tile_m).query;
    limits.begin[half] = visible.begin(query);
    limits.end[half] = visible.end(query);
  }
  return limits;
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

/// Where the rows of the next tile lie, so that no copy waits for the table: lane i has the first of the i-th 16.
template <CacheLayout layout, int tile_n>
struct TileRows {
  CacheRow found;

  /// What no query sees is not looked up. All lanes of a warp call everything together.
  __device__ __forceinline__ void find(const CacheRows<layout>& rows, int key, int begin, int end) {
    const int first = key + static_cast<int>(threadIdx.x) % 32 % (tile_n / 16) * 16;
    found = first < end && first + 16 > begin ? rows.at(first) : CacheRow{0, 0};
  }
  __device__ __forceinline__ CacheRow first(int sixteen) const {
    return {__shfl_sync(full_warp, found.outer, sixteen), __shfl_sync(full_warp, found.row, sixteen)};
  }
  __device__ __forceinline__ InOrder places(int) const { return {}; }
};

/// Rows that lie anywhere in a sequence: lane i has the i-th of each 32.
template <int tile_n>
struct TileRows<CacheLayout::indexed, tile_n> {
  int sequence, found[(tile_n + 31) / 32];

  __device__ __forceinline__ void find(const CacheRows<CacheLayout::indexed>& rows, int key, int begin, int end) {
    sequence = rows.sequence;
#pragma unroll
    for (int i = 0; i < (tile_n + 31) / 32; ++i) {
      const int own = key + i * 32 + static_cast<int>(threadIdx.x) % 32 % tile_n;
      found[i] = own >= begin && own < end ? rows.at(own).row : 0;
    }
  }
  __device__ __forceinline__ CacheRow first(int) const { return {sequence, 0}; }
  __device__ __forceinline__ LookedUp places(int sixteen) const { return {found[sixteen / 2], sixteen % 2 * 16}; }
};

/// Copies tiles of one group's keys and values of a part, in the order of the keys.
template <typename Tiling>
class TileCopy {
 public:
  using Form = typename Tiling::Form;
  using Cache = typename Form::Cache;

  /// `key`: the first of the group's first tile. All lanes of a warp call everything together.
  __device__ __forceinline__ TileCopy(const Operand<Cache>& keys, const Operand<Cache>& values,
                                      const CacheRows<Form::layout>& rows, const Extent& extent, int key)
      : keys_(keys), values_(values), rows_(rows), begin_(extent.begin), end_(extent.end), key_(key) {
    tile_.find(rows_, key_, begin_, end_);
  }

  __device__ __forceinline__ void next(unsigned to) {
    const int thread = static_cast<int>(threadIdx.x) % Tiling::group_threads;
#pragma unroll
    for (int i = 0; i < Tiling::tile_n / 16; ++i) {
      const CacheRow row = tile_.first(i);
      const auto places = tile_.places(i);
      const int first = key_ + i * 16;
      copy_rows<typename Tiling::Key, Form::head_dim, Tiling::group_threads>(
          to, i * 16, keys_.at(row), keys_.row_stride, places, begin_ - first, end_ - first, thread);
      copy_rows<typename Tiling::Value, Form::value_dim, Tiling::group_threads>(
          to + Tiling::Key::bytes, i * 16, values_.at(row), values_.row_stride, places, begin_ - first, end_ - first,
          thread);
    }
    key_ += Tiling::block_n;
    tile_.find(rows_, key_, begin_, end_);
  }

 private:
  Operand<Cache> keys_, values_;
  CacheRows<Form::layout> rows_;
  int begin_, end_, key_;
  TileRows<Form::layout, Tiling::tile_n> tile_;
};

/// Adds one tile of keys and values to a warp's 16 rows.
template <typename Tiling, int sums_count>
__device__ __forceinline__ void absorb_tile(float (&sums)[sums_count], SoftmaxRows& rows, unsigned queries,
                                            unsigned tile, int warp_row,
                                            const Scores<Tiling::Form::soft_cap>& to_scores, const RowLimits& limits,
                                            int key) {
  using T = typename Tiling::Form::T;
  using Weight = typename WeightOf<T, Tiling::Form::has_bytes>::type;
  constexpr int tile_n = Tiling::tile_n;
  float scores[tile_n / 2] = {};
#pragma unroll
  for (int step = 0; step < Tiling::Key::k_steps; ++step) {
    if constexpr (Tiling::Form::has_bytes) {
      multiply_byte_keys<typename Tiling::Query, typename Tiling::Key, tile_n>(scores, queries, warp_row, tile, step);
    } else {
      unsigned a[4], b[4];
      Tiling::Query::load_a(a, queries, warp_row, step);
#pragma unroll
      for (int i = 0; i < tile_n / 16; ++i) {
        Tiling::Key::load_b(b, tile, i * 16, step);
        multiply<T>(scores, i, a, b);
      }
    }
  }
  to_scores.cap(scores);
  limits.template apply<Tiling::Form::mask>(scores, key);
  float factor[2];
  if (rows.template absorb<true, Lazy::by_warp>(scores, to_scores.rate, factor)) scale_rows(sums, factor);
#pragma unroll
  for (int step = 0; step < tile_n / 16; ++step) {
    unsigned a[4], b[4];
    pack_weights<Weight>(a, scores, step);
#pragma unroll
    for (int i = 0; i < Tiling::Value::k_steps; ++i) {
      Tiling::Value::load_b_trans(b, tile + Tiling::Key::bytes, step * 16, i);
      if constexpr (Tiling::Form::has_bytes) {
        multiply_byte_values(sums, i, a, b);
      } else {
        multiply<T>(sums, i, a, b);
      }
    }
  }
}

/// Adds `tiles` tiles, the first of which begins with `key`. The copies of the first stages - 1 have begun, into slots of `ring` in order.
template <typename Tiling, int sums_count>
__device__ __forceinline__ void absorb_tiles(float (&sums)[sums_count], SoftmaxRows& rows, TileCopy<Tiling>& copy,
                                             unsigned queries, unsigned ring, int group, int warp_row,
                                             const Scores<Tiling::Form::soft_cap>& to_scores, const RowLimits& limits,
                                             int key, int tiles) {
  constexpr int stages = Tiling::stages;
  int slot = 0;
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    cp_async_wait<stages - 2>();
    if constexpr (Tiling::row_warps == 1) {
      __syncwarp();
    } else {
      named_barrier_sync(1 + group, Tiling::group_threads);
    }
    // The slot that was read last is free.
    if (i + stages - 1 < tiles) copy.next(ring + (slot == 0 ? stages - 1 : slot - 1) * Tiling::stage_bytes);
    cp_async_commit();
    absorb_tile<Tiling>(sums, rows, queries, ring + slot * Tiling::stage_bytes, warp_row, to_scores, limits,
                        key + i * Tiling::block_n);
    slot = slot + 1 == stages ? 0 : slot + 1;
  }
  cp_async_wait<0>();
}

/// Puts a warp's sums, in `unit`, and states where all threads of the block find them.
template <typename Tiling, int sums_count>
__device__ __forceinline__ void give_sums(char* memory, const float (&sums)[sums_count], const SoftmaxRows& rows,
                                          float rate, float unit, int group, int warp_row) {
  using Form = typename Tiling::Form;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = group * Tiling::tile_m + warp_row + lane / 4 + 8 * half;
    const float sum = warp_reduce<4>(rows.sum[half], add{});
    if (lane % 4 == 0) reinterpret_cast<RowState*>(memory)[row] = {rows.largest[half] * rate, sum};
    float* const own = reinterpret_cast<float*>(memory + Tiling::states_bytes) + row * Tiling::sums_pitch;
    if constexpr (Form::has_bytes) {
      store_byte_sums<Form::value_dim>(own, sums, half, unit);
    } else {
      float* const to = own + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < Form::value_dim / 8; ++i)
        *reinterpret_cast<float2*>(to + i * 8) = make_float2(sums[i * 4 + half * 2], sums[i * 4 + half * 2 + 1]);
    }
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
