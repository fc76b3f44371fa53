// The tiles of queries that a block with some keys goes through.
#pragma once

#include "scores.cuh"

namespace kiln::attention {

/// Tiles of queries in the order in which a block takes them: those of the first head, then those of the next.
struct QueryTiles {
  int begin, end, tile;  // rows, and how many are a tile
  int head, row;

  __device__ __forceinline__ QueryTiles(QueryRange seen, int tile_rows, int first_head)
      : begin(seen.begin / tile_rows * tile_rows), end(seen.end), tile(tile_rows), head(first_head), row(begin) {}
  __device__ __forceinline__ int per_head() const { return end > begin ? ceil_div(end - begin, tile) : 0; }
  __device__ __forceinline__ void advance() {
    row += tile;
    if (row < end) return;
    row = begin;
    ++head;
  }
};

}  // namespace kiln::attention
