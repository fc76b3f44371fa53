// Matrices of one shape walked together, element by element: chunks of N neighbours of a row, several to a thread, whatever
// the strides and alignments. A chunk is one or more accesses of up to 16 bytes, its pieces.
//
// Chunks follow one matrix, and its rows may begin anywhere. Where they do not all begin at a multiple of a piece, each
// row's chunk 0 ends at the first such multiple. In another matrix, or past a row's end, a piece is accessed element by
// element.
#pragma once

#include "common/vector.cuh"

namespace kiln {

template <typename T, int N>
struct chunk_pieces {
  static constexpr int width = N * sizeof(T) < 16 ? N : static_cast<int>(16 / sizeof(T));
  static constexpr int count = N / width;
  packed<T, width> at[count];

  __device__ __forceinline__ vec<T, N> values() const {
    vec<T, N> all;
#pragma unroll
    for (int i = 0; i < N; ++i) all.at[i] = unpack<T, width>(at[i / width]).at[i % width];
    return all;
  }
  /// make(i) for each of the N elements.
  template <typename Make>
  static __device__ __forceinline__ chunk_pieces of(Make make) {
    chunk_pieces made;
#pragma unroll
    for (int piece = 0; piece < count; ++piece) {
      vec<T, width> part;
#pragma unroll
      for (int i = 0; i < width; ++i) part.at[i] = make(piece * width + i);
      made.at[piece] = pack(part);
    }
    return made;
  }
};

/// One of the elements of a word; of bytes by a shift, since 16 of them would not stay in registers.
template <typename T, int N>
__device__ __forceinline__ T element(const packed<T, N>& word, int i) {
  if constexpr (sizeof(T) == 1 && N % 4 == 0) {
    const unsigned four = __builtin_bit_cast(vec<unsigned, N / 4>, word).at[i / 4];
    return __builtin_bit_cast(T, static_cast<unsigned char>(four >> i % 4 * 8));
  } else {
    return unpack<T, N>(word).at[i];
  }
}

/// The chunks of one thread, all of one row: Items of them, Lanes * N columns apart.
template <int N, int Lanes, int Items>
struct chunk_share {
  int row;
  int first;  // column of the first chunk; may be below 0
  int cols;   // 0 past the last row

  __device__ __forceinline__ int column(int item) const { return first + item * Lanes * N; }

  /// Zeros for what the matrix does not have.
  template <typename T>
  __device__ __forceinline__ void load(chunk_pieces<T, N> (&to)[Items], const T* matrix, long long stride) const {
    constexpr int width = chunk_pieces<T, N>::width, pieces = chunk_pieces<T, N>::count;
    const T* from = matrix + row * stride + first;
    const bool aligned = is_aligned<width * sizeof(T)>(from);
    bool all = true;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        const bool one_access = aligned && whole<width>(item, piece);
        to[item].at[piece] = pack(vec<T, width>{});
        if (one_access) to[item].at[piece] = load_packed<width>(from + item * Lanes * N + piece * width);
        all = all && (one_access || column(item) + piece * width >= cols);
      }
    }
    if (all) return;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        if (aligned && whole<width>(item, piece)) continue;
        vec<T, width> values = {};
#pragma unroll
        for (int i = 0; i < width; ++i) {
          if (has(item, piece * width + i)) values.at[i] = from[item * Lanes * N + piece * width + i];
        }
        to[item].at[piece] = pack(values);
      }
    }
  }

  template <typename T>
  __device__ __forceinline__ void store(int item, T* matrix, long long stride, const chunk_pieces<T, N>& chunk) const {
    constexpr int width = chunk_pieces<T, N>::width, pieces = chunk_pieces<T, N>::count;
    T* to = matrix + row * stride + first;
    const bool aligned = is_aligned<width * sizeof(T)>(to);
    to += item * Lanes * N;
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) {
      if (aligned && whole<width>(item, piece)) {
        store_packed<width>(to + piece * width, chunk.at[piece]);
      } else {
#pragma unroll
        for (int i = 0; i < width; ++i) {
          if (has(item, piece * width + i)) to[piece * width + i] = element<T, width>(chunk.at[piece], i);
        }
      }
    }
  }

 private:
  template <int Width>
  __device__ __forceinline__ bool whole(int item, int piece) const {
    const int at = column(item) + piece * Width;
    return at >= 0 && at + Width <= cols;
  }
  __device__ __forceinline__ bool has(int item, int i) const {
    return static_cast<unsigned>(column(item) + i) < static_cast<unsigned>(cols);
  }
};

/// How blocks of Threads share the chunks of a matrix out: Lanes neighbouring threads (a power of 2) take a row, or a tile
/// of Lanes * Items of its chunks.
template <int N, int Threads, int Lanes, int Items>
struct chunk_tiles {
  static_assert(Threads % Lanes == 0);
  static constexpr int tile = Lanes * Items;  // chunks
  int rows, cols;
  int a_row;           // chunks
  bool level;          // every row begins at a multiple of a piece
  unsigned width;      // of a piece
  unsigned phase;      // elements of the first row's beginning past such a multiple,
  unsigned row_phase;  // and how many more those of each row are than of the one before

  /// After a matrix.
  template <typename T>
  static __device__ __forceinline__ chunk_tiles of(const T* matrix, long long stride, int rows, int cols) {
    constexpr unsigned width = chunk_pieces<T, N>::width;
    const unsigned phase = static_cast<unsigned>(reinterpret_cast<unsigned long long>(matrix) / sizeof(T)) % width;
    const unsigned row_phase = static_cast<unsigned>(stride) % width;
    const bool level = phase == 0 && row_phase == 0;
    return {rows, cols, (cols + N - 1) / N + (level ? 0 : 1), level, width, phase, row_phase};
  }
  /// From each row's first column on, in whole groups of `group` columns, whose chunks belong to neighbouring threads of
  /// one warp.
  static __device__ __forceinline__ chunk_tiles in_groups(int group, int rows, int cols) {
    return {rows, cols, (cols + group - 1) / group * (group / N), true, 1, 0, 0};
  }

  /// Blocks that a row, or the rows of one block, take: what the grid goes by. A row's chunks may be one tile more,
  /// which its first block then takes too.
  __device__ __forceinline__ unsigned blocks_across() const {
    return static_cast<unsigned>((cols + N - 1) / N + tile - 1) / tile;
  }
  __device__ __forceinline__ unsigned blocks() const {
    return static_cast<unsigned>(rows + Threads / Lanes - 1) / (Threads / Lanes) * blocks_across();
  }
  /// visit(share) for what thread threadIdx.x of block `block` has: the same number of times for all of a block.
  template <typename Visit>
  __device__ __forceinline__ void visit(unsigned block, Visit visit) const {
    const unsigned across = blocks_across();
    const unsigned row = block / across * (Threads / Lanes) + threadIdx.x / Lanes;
    int lead = 0;
    if (!level) lead = N - static_cast<int>((0u - phase - row * row_phase) % width);
    for (int chunk = static_cast<int>(block % across) * tile; chunk < a_row; chunk += static_cast<int>(across) * tile) {
      visit(chunk_share<N, Lanes, Items>{static_cast<int>(row),
                                         (chunk + static_cast<int>(threadIdx.x % Lanes)) * N - lead,
                                         row < static_cast<unsigned>(rows) ? cols : 0});
    }
  }
};

}  // namespace kiln
