// A row held in the registers of the threads that share it, whatever its length, stride and alignment.
//
//   address:  |--.....|........|........|........|...-----|
//               front   chunk 0  chunk 1  chunk 2   tail
//
// Chunks of N elements begin at addresses that are multiples of their size; chunk i * Threads + t belongs to thread t.
// The `peel` (fewer than N) elements before them go to the first threads, one each. The tail is a chunk that is
// accessed element by element, as all are in a tensor whose rows have another phase than those that gave `peel`.
#pragma once

#include "common/vector.cuh"

namespace kiln {

/// How many elements of a row stand before the first address that is a multiple of N elements.
template <int N, typename T>
__device__ __forceinline__ int peel_of(const T* row, int cols) {
  const auto address = reinterpret_cast<unsigned long long>(row) / sizeof(T);
  return min(static_cast<int>((N - address % N) % N), cols);
}

/// What thread `thread` of Threads holds: Items chunks and at most one element of the front. Elements past the row's
/// end have the value that was given for them. Threads >= N, and the row has at most Threads * N * Items elements.
template <typename T, int Threads, int N, int Items>
struct row_share {
  static_assert(Threads >= N);
  using chunk = vec<T, N>;
  packed<T, N> chunks[Items];  // a register for each 16-bit element would be twice as many
  T front;

  static __device__ __forceinline__ int column(int thread, int peel, int item) { return peel + (item * Threads + thread) * N; }

  /// Streaming is for data that is read once.
  template <bool Streaming>
  static __device__ __forceinline__ row_share load_row(const T* row, int cols, int thread, int peel, T past_end) {
    row_share share;
    share.front = thread < peel ? row[thread] : past_end;
    chunk blank;
#pragma unroll
    for (int i = 0; i < N; ++i) blank.at[i] = past_end;
    const packed<T, N> packed_blank = pack(blank);
    const bool aligned = is_aligned<N * sizeof(T)>(row + peel);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      share.chunks[item] = packed_blank;
      if (aligned && first + N <= cols) share.chunks[item] = load_packed<N, Streaming>(row + first);
    }
    if (aligned && (cols - peel) % N == 0) return share;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      if (aligned && first + N <= cols) continue;
      chunk partial = blank;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (first + i < cols) partial.at[i] = row[first + i];
      }
      share.chunks[item] = pack(partial);
    }
    return share;
  }

  __device__ __forceinline__ void store_row(T* row, int cols, int thread, int peel) const {
    if (thread < peel) row[thread] = front;
    const bool aligned = is_aligned<N * sizeof(T)>(row + peel);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      if (aligned && first + N <= cols) store_packed<N, true>(row + first, chunks[item]);
    }
    if (aligned && (cols - peel) % N == 0) return;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      if (aligned && first + N <= cols) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (first + i < cols) row[first + i] = unpack<T, N>(chunks[item]).at[i];
      }
    }
  }

  /// The same places of a row of U, with `make` of each element.
  template <typename U, typename Make>
  __device__ __forceinline__ row_share<U, Threads, N, Items> map(Make make) const {
    row_share<U, Threads, N, Items> made;
    made.front = make(front);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      vec<U, N> result;
#pragma unroll
      for (int i = 0; i < N; ++i) result.at[i] = make(unpack<T, N>(chunks[item]).at[i]);
      made.chunks[item] = pack(result);
    }
    return made;
  }

  /// The same of the elements of two rows.
  template <typename Make>
  __device__ __forceinline__ row_share map(const row_share& other, Make make) const {
    row_share made;
    made.front = make(front, other.front);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      chunk result;
#pragma unroll
      for (int i = 0; i < N; ++i) result.at[i] = make(unpack<T, N>(chunks[item]).at[i], unpack<T, N>(other.chunks[item]).at[i]);
      made.chunks[item] = pack(result);
    }
    return made;
  }

  /// combine(... combine(combine(start, element), element) ...)
  template <typename U, typename Combine>
  __device__ __forceinline__ U fold(U start, Combine combine) const {
    U result = combine(start, front);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
#pragma unroll
      for (int i = 0; i < N; ++i) result = combine(result, unpack<T, N>(chunks[item]).at[i]);
    }
    return result;
  }

  __device__ __forceinline__ chunk get(int item) const { return unpack(chunks[item]); }
};

/// Calls body(row, share, peel, turn) for the row of this block. With Prefetch the block goes on to every gridDim.x-th
/// row after it and loads each before the body of the one before; `turn` alternates between 0 and 1.
template <typename Share, bool Prefetch, int N, typename T, typename Body>
__device__ __forceinline__ void for_each_row(const T* x, long long row_stride, long long rows, int cols, T past_end,
                                             Body body) {
  long long row = blockIdx.x;
  int peel = peel_of<N>(x + row * row_stride, cols);
  Share values = Share::template load_row<true>(x + row * row_stride, cols, threadIdx.x, peel, past_end);
  for (int turn = 0;; turn ^= 1) {
    const long long next_row = row + gridDim.x;
    const bool more = Prefetch && next_row < rows;
    int next_peel = 0;
    Share next;
    if (more) {
      next_peel = peel_of<N>(x + next_row * row_stride, cols);
      next = Share::template load_row<true>(x + next_row * row_stride, cols, threadIdx.x, next_peel, past_end);
    }
    body(row, values, peel, turn);
    if (!more) return;
    values = next;
    row = next_row;
    peel = next_peel;
  }
}

}  // namespace kiln
