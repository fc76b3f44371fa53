// Matrices of one shape walked together, element by element: chunks of N neighbours of a row, dealt to the threads of a
// grid in their order, whatever the strides and alignments. A chunk is one or more accesses of up to 16 bytes, its pieces.
//
// Chunks follow one matrix, whose rows may begin anywhere: where they do not all begin at a multiple of a piece, each row's
// chunk 0 ends at the first such multiple. Of another matrix, or past a row's end, a piece is accessed element by element.
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

/// The chunks of one thread.
template <int N, int Items>
struct chunk_share {
  int rows[Items], firsts[Items];  // a first column may be below 0; a row past the last one has no columns
  int cols[Items];

  template <int Width>
  __device__ __forceinline__ bool whole(int item, int piece) const {
    const int first = firsts[item] + piece * Width;
    return first >= 0 && first + Width <= cols[item];
  }

  /// Zeros for what the matrix does not have.
  template <typename T>
  __device__ __forceinline__ void load(chunk_pieces<T, N> (&to)[Items], const T* matrix, long long stride) const {
    constexpr int width = chunk_pieces<T, N>::width, pieces = chunk_pieces<T, N>::count;
    bool all = true;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const T* from = matrix + rows[item] * stride + firsts[item];
      const bool aligned = is_aligned<width * sizeof(T)>(from);
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        const bool one_access = aligned && whole<width>(item, piece);
        to[item].at[piece] = pack(vec<T, width>{});
        if (one_access) to[item].at[piece] = load_packed<width>(from + piece * width);
        all = all && (one_access || firsts[item] + piece * width >= cols[item]);
      }
    }
    if (all) return;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const T* from = matrix + rows[item] * stride + firsts[item];
      const bool aligned = is_aligned<width * sizeof(T)>(from);
#pragma unroll
      for (int piece = 0; piece < pieces; ++piece) {
        if (aligned && whole<width>(item, piece)) continue;
        vec<T, width> values = {};
#pragma unroll
        for (int i = 0; i < width; ++i) {
          if (has(item, piece * width + i)) values.at[i] = from[piece * width + i];
        }
        to[item].at[piece] = pack(values);
      }
    }
  }

  template <typename T>
  __device__ __forceinline__ void store(int item, T* matrix, long long stride, const chunk_pieces<T, N>& chunk) const {
    constexpr int width = chunk_pieces<T, N>::width, pieces = chunk_pieces<T, N>::count;
    T* to = matrix + rows[item] * stride + firsts[item];
    const bool aligned = is_aligned<width * sizeof(T)>(to);
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
  __device__ __forceinline__ bool has(int item, int i) const {
    return static_cast<unsigned>(firsts[item] + i) < static_cast<unsigned>(cols[item]);
  }
};

/// The chunks of a matrix in their order: `a_row` of them in each row.
template <int N>
struct chunk_order {
  unsigned a_row;
  int rows, cols;
  bool level;          // every row begins at a multiple of a piece
  unsigned width;      // of a piece
  unsigned phase;      // elements of the first row's beginning past such a multiple,
  unsigned row_phase;  // and how many more those of each row are than of the one before

  /// After a matrix; the grid is to have a place for ceil(cols / N) + 1 chunks of each row.
  template <typename T>
  static __device__ __forceinline__ chunk_order of(const T* matrix, long long stride, int rows, int cols) {
    constexpr unsigned width = chunk_pieces<T, N>::width;
    const unsigned phase = static_cast<unsigned>(reinterpret_cast<unsigned long long>(matrix) / sizeof(T)) % width;
    const unsigned row_phase = static_cast<unsigned>(stride) % width;
    const bool level = phase == 0 && row_phase == 0;
    return {static_cast<unsigned>(cols + N - 1) / N + (level ? 0 : 1), rows, cols, level, width, phase, row_phase};
  }
  /// From each row's first column on, in whole groups of `group` columns, so that a group's chunks belong to neighbouring
  /// threads of one warp.
  static __device__ __forceinline__ chunk_order in_groups(int group, int rows, int cols) {
    return {static_cast<unsigned>((cols + group - 1) / group * (group / N)), rows, cols, true, 1, 0, 0};
  }

  template <int Threads, int Items>
  __device__ __forceinline__ bool reaches(unsigned block) const {
    return static_cast<unsigned long long>(block) * (Threads * Items) <
           static_cast<unsigned long long>(a_row) * static_cast<unsigned>(rows);
  }
  /// What thread threadIdx.x of block `block` has; a warp's chunks are neighbours.
  template <int Threads, int Items>
  __device__ __forceinline__ chunk_share<N, Items> deal(unsigned block) const {
    chunk_share<N, Items> share;
    const unsigned long long begin = static_cast<unsigned long long>(block) * (Threads * Items);
    const unsigned first_row = static_cast<unsigned>(begin / a_row), rest = static_cast<unsigned>(begin % a_row);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const unsigned index = rest + item * Threads + threadIdx.x, row = first_row + index / a_row;
      share.rows[item] = static_cast<int>(row);
      share.firsts[item] = static_cast<int>(index % a_row) * N;
      if (!level) share.firsts[item] -= N - static_cast<int>((0u - phase - row * row_phase) % width);
      share.cols[item] = row < static_cast<unsigned>(rows) ? cols : 0;
    }
    return share;
  }
};

}  // namespace kiln
