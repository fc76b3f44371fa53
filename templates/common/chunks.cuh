// Matrices of one shape walked together, element by element: chunks of N neighbours of a row, dealt to the threads of a
// grid in their order, whatever the strides and alignments.
//
// Chunks follow one matrix, whose rows may begin anywhere: where they do not all begin at a multiple of a chunk, each row's
// chunk 0 is what stands before the first such multiple. Of another matrix, or past a row's end, a chunk is accessed
// element by element.
#pragma once

#include "common/vector.cuh"

namespace kiln {

/// The chunks of one thread.
template <int N, int Items>
struct chunk_share {
  int rows[Items], firsts[Items];  // a first column may be below 0; a row past the last one has no columns
  int cols[Items];

  __device__ __forceinline__ bool whole(int item) const { return firsts[item] >= 0 && firsts[item] + N <= cols[item]; }

  /// Zeros for what the matrix does not have.
  template <typename T>
  __device__ __forceinline__ void load(packed<T, N> (&to)[Items], const T* matrix, long long stride) const {
    bool all = true;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const T* from = matrix + rows[item] * stride + firsts[item];
      const bool one_access = whole(item) && is_aligned<N * sizeof(T)>(from);
      to[item] = pack(vec<T, N>{});
      if (one_access) to[item] = load_packed<N>(from);
      all = all && (one_access || cols[item] == 0);
    }
    if (all) return;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const T* from = matrix + rows[item] * stride + firsts[item];
      if (whole(item) && is_aligned<N * sizeof(T)>(from)) continue;
      vec<T, N> values = {};
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (static_cast<unsigned>(firsts[item] + i) < static_cast<unsigned>(cols[item])) values.at[i] = from[i];
      }
      to[item] = pack(values);
    }
  }

  template <typename T>
  __device__ __forceinline__ void store(int item, T* matrix, long long stride, const vec<T, N>& values) const {
    T* to = matrix + rows[item] * stride + firsts[item];
    if (whole(item) && is_aligned<N * sizeof(T)>(to)) {
      store_packed<N>(to, pack(values));
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (static_cast<unsigned>(firsts[item] + i) < static_cast<unsigned>(cols[item])) to[i] = values.at[i];
      }
    }
  }
};

/// The chunks of a matrix in their order: `a_row` of them in each row.
template <int N>
struct chunk_order {
  unsigned a_row;
  int rows, cols;
  bool level;          // every row begins at a multiple of a chunk
  unsigned phase;      // else: elements of the first row's beginning past such a multiple,
  unsigned row_phase;  // and how many more those of each row are than of the one before

  /// After a matrix; the grid is to have a place for ceil(cols / N) + 1 chunks of each row.
  template <typename T>
  static __device__ __forceinline__ chunk_order of(const T* matrix, long long stride, int rows, int cols) {
    const unsigned phase = static_cast<unsigned>(reinterpret_cast<unsigned long long>(matrix) / sizeof(T)) % N;
    const unsigned row_phase = static_cast<unsigned>(stride) % N;
    const bool level = phase == 0 && row_phase == 0;
    return {static_cast<unsigned>(cols + N - 1) / N + (level ? 0 : 1), rows, cols, level, phase, row_phase};
  }
  /// From each row's first column on, in whole groups of `group` columns, so that a group's chunks belong to neighbouring
  /// threads of one warp.
  static __device__ __forceinline__ chunk_order in_groups(int group, int rows, int cols) {
    return {static_cast<unsigned>((cols + group - 1) / group * (group / N)), rows, cols, true, 0, 0};
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
      if (!level) share.firsts[item] -= N - static_cast<int>((0u - phase - row * row_phase) % N);
      share.cols[item] = row < static_cast<unsigned>(rows) ? cols : 0;
    }
    return share;
  }
};

}  // namespace kiln
