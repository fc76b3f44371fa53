// attention_paged on the tensor cores of sm_80 and later: as common/attention/forward_mma.cuh, but keys and values come
// from pages of a pool. Those of 8 bits become elements of q's type, which holds them exactly, on their way to shared memory.
#pragma once

#include "common/attention/cache_rows.cuh"
#include "common/attention/forward_mma.cuh"
#include "common/attention/widened.cuh"
#include "common/view.cuh"
#include "terms.cuh"

namespace kiln::attention {

/// Copies rows of 8-bit elements, each from the address that `at(row)` gives, to a tile, as elements of T; zeros in columns past `dim`. Unlike
/// cp.async the call waits for what it reads. No branch parts a thread's loads, so that eight wait together.
template <typename T, int threads, int dim, int rows, typename At>
__device__ __forceinline__ void copy_widened(RowTile<dim, rows> /*tile*/, unsigned to, At at) {
  using Tile = RowTile<dim, rows>;
  constexpr int chunks = Tile::k_steps * 2, all = rows * chunks, each = (all + threads - 1) / threads;
  constexpr int together = each < 8 ? each : 8;
  char* const memory = dynamic_shared();
  char* const tile = memory + (to - shared_address(memory));
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < all; first += together * threads) {
    uint2 bytes[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const int row = (first + i * threads) / chunks, chunk = (first + i * threads) % chunks;
      bytes[i] = *reinterpret_cast<const uint2*>(at(row) + (dim % 16 == 0 || chunk * 8 < dim ? chunk * 8 : 0));
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const int row = (first + i * threads) / chunks, chunk = (first + i * threads) % chunks;
      if (all % (together * threads) != 0 && row >= rows) continue;
      if (dim % 16 != 0 && chunk * 8 >= dim) bytes[i] = make_uint2(0, 0);
      *reinterpret_cast<uint4*>(tile + Tile::offset(row, chunk)) = widened_to<T>(bytes[i]);
    }
  }
}

/// Keys and values in pages, which are multiplied as T.
template <typename T, typename Cache>
struct PagedKeys {
  HeadRows<const Cache> k, v;
  view<const int, 1> block_table;
  int page_size, pages;

  /// Those of a sequence and a key head.
  struct OfHead {
    HeadRows<const Cache> k, v;  // from the head's first element on
    CacheRows<CacheLayout::paged> rows;
    int first_seen, keys;

    /// Starts the copies of a block of `tile_n`, to its stage of two. Keys before `first_seen`, which no query of the tile sees, and past the last
    /// become zeros; of 8 bits, they become the block's nearest that some query sees. Their weights are 0.
    template <typename KeyTile, typename ValueTile, int tile_n, int threads>
    __device__ __forceinline__ void copy(unsigned stages, int block) const {
      const unsigned to = stages + block % 2 * (KeyTile::bytes + ValueTile::bytes);
      copy_from<KeyTile, threads>(to, k, block * tile_n);
      copy_from<ValueTile, threads>(to + KeyTile::bytes, v, block * tile_n);
    }

   private:
    template <typename Tile, int threads>
    __device__ __forceinline__ void copy_from(unsigned to, const HeadRows<const Cache>& from, int first) const {
      const auto at = [&](int key) {
        const CacheRow place = rows.at(key);
        return from.at + place.outer * from.batch_stride + place.row * from.row_stride;
      };
      if constexpr (sizeof(Cache) == 1) {
        copy_widened<T, threads>(Tile{}, to, [&](int row) { return at(min(max(first + row, first_seen), keys - 1)); });
      } else {
        Tile::template copy_rows<threads>(
            to, from.at, [&](int row) { return first + row >= first_seen && first + row < keys; },
            [&](int row) { return at(first + row); });
      }
    }
  };
  __device__ __forceinline__ OfHead of_head(const Sequence& of, int head, int first_seen) const {
    OfHead made = {k,
                   v,
                   {of.first_key, block_table.address + of.first_key * block_table.strides[0], page_size, pages},
                   first_seen,
                   of.keys};
    made.k.at += head * k.head_stride;
    made.v.at += head * v.head_stride;
    return made;
  }
};

}  // namespace kiln::attention

/// grid (blocks of 16 * warps of `longest` queries * heads * batch), block (32 * warps); dynamic shared memory as mma.toml says.
/// k_scale and v_scale: of each key head, read where Cache has 8 bits alone.
/// REQUIRES: q, k, v, out and their rows begin at multiples of 8 elements.
template <typename Form, int tile_n, int warps, typename Cache = typename Form::T>
__global__ void __launch_bounds__(warps * 32)
    attention_paged_mma(kiln::attention::HeadRows<const typename Form::T> q, kiln::attention::HeadRows<const Cache> k,
                        kiln::attention::HeadRows<const Cache> v, kiln::attention::HeadRows<typename Form::T> out,
                        kiln::attention::LogSums lse, const int* query_offsets, const int* key_lengths,
                        kiln::view<const int, 1> block_table, unsigned long long* query_report,
                        unsigned long long* key_report, int batch, int queries, int keys, int longest, int heads,
                        int key_heads, int page_size, int pages, float scale, float cap, long long window_left,
                        const float* sinks, kiln::attention::HeadScales k_scale, kiln::attention::HeadScales v_scale) {
  using namespace kiln::attention;
  using T = typename Form::T;
  const PagedKeys<T, Cache> paged = {k, v, block_table, page_size, pages};
  const Sequences all = {query_offsets, key_lengths, batch, queries, keys};
  const OffsetReports reports = {query_report, key_report, longest};
  const ForwardTerms<T> terms = paged_terms<T>(scale, cap, window_left, sinks);
  if constexpr (sizeof(Cache) == 1) {
    attention_mma_block<Form, tile_n, warps>(q, paged, out, lse, all, reports, heads, key_heads, terms, k_scale,
                                             v_scale);
  } else {
    attention_mma_block<Form, tile_n, warps>(q, paged, out, lse, all, reports, heads, key_heads, terms);
  }
}
