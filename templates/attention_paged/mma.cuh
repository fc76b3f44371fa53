// attention_paged on the tensor cores of sm_80 and later: as common/attention/forward_mma.cuh, but keys and values come
// from pages of a pool.
#pragma once

#include "common/attention/cache_rows.cuh"
#include "common/attention/forward_mma.cuh"
#include "common/view.cuh"
#include "terms.cuh"

namespace kiln::attention {

/// Keys and values in pages.
template <typename T>
struct PagedKeys {
  HeadRows<const T> k, v;
  view<const int, 1> block_table;
  int page_size, pages;

  /// Those of a sequence and a key head.
  struct OfHead {
    HeadRows<const T> k, v;  // from the head's first element on
    CacheRows<CacheLayout::paged> rows;
    int first_seen, keys;

    /// Starts the copies of a block of `tile_n`, to its stage of two; zeros for keys before `first_seen`, which no query of the tile sees.
    template <typename KeyTile, typename ValueTile, int tile_n, int threads>
    __device__ __forceinline__ void copy(unsigned stages, int block) const {
      const unsigned to = stages + block % 2 * (KeyTile::bytes + ValueTile::bytes);
      copy_from<KeyTile, threads>(to, k, block * tile_n);
      copy_from<ValueTile, threads>(to + KeyTile::bytes, v, block * tile_n);
    }

   private:
    template <typename Tile, int threads>
    __device__ __forceinline__ void copy_from(unsigned to, const HeadRows<const T>& from, int first) const {
      Tile::template copy_rows<threads>(
          to, from.at, [&](int row) { return first + row >= first_seen && first + row < keys; },
          [&](int row) {
            const CacheRow at = rows.at(first + row);
            return from.at + at.outer * from.batch_stride + at.row * from.row_stride;
          });
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
/// REQUIRES: q, k, v, out and their rows begin at multiples of 8 elements.
template <typename Form, int tile_n, int warps>
__global__ void __launch_bounds__(warps * 32)
    attention_paged_mma(kiln::attention::HeadRows<const typename Form::T> q,
                        kiln::attention::HeadRows<const typename Form::T> k,
                        kiln::attention::HeadRows<const typename Form::T> v,
                        kiln::attention::HeadRows<typename Form::T> out, kiln::attention::LogSums lse,
                        const int* query_offsets, const int* key_lengths, kiln::view<const int, 1> block_table,
                        unsigned long long* query_report, unsigned long long* key_report, int batch, int queries,
                        int keys, int longest, int heads, int key_heads, int page_size, int pages, float scale,
                        float cap, long long window_left, const float* sinks) {
  using namespace kiln::attention;
  using T = typename Form::T;
  attention_mma_block<Form, tile_n, warps>(q, PagedKeys<T>{k, v, block_table, page_size, pages}, out, lse,
                                           {query_offsets, key_lengths, batch, queries, keys},
                                           {query_report, key_report, longest}, heads, key_heads,
                                           paged_terms<T>(scale, cap, window_left, sinks));
}
