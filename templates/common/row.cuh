// A row held in the registers of the threads that share it, whatever its length, stride and alignment.
//
//   address:  |--.....|........|........|........|...-----|
//               front   chunk 0  chunk 1  chunk 2   tail
//
// Chunks of N elements begin at addresses that are multiples of their size; chunk i * Threads + t belongs to thread t.
// The `peel` (fewer than N) elements before them go to the first threads, one each. The tail is a chunk that is
// accessed element by element. So are all chunks of a tensor whose rows have another phase than those that gave `peel`.
#pragma once

#include "common/vector.cuh"

namespace kiln {

/// How many elements of a row stand before the first address that is a multiple of N elements.
template <int N, typename T>
__device__ __forceinline__ int peel_of(const T* row, int cols) {
  const auto address = reinterpret_cast<unsigned long long>(row) / sizeof(T);
  return min(static_cast<int>((N - address % N) % N), cols);
}

/// A chunk element by element: past_end for those at or after cols.
template <int N, typename T>
__device__ __forceinline__ packed<T, N> load_partial(const T* row, int first, int cols, T past_end) {
  vec<T, N> values;
#pragma unroll
  for (int i = 0; i < N; ++i) values.at[i] = first + i < cols ? row[first + i] : past_end;
  return pack(values);
}
template <int N, typename T>
__device__ __forceinline__ void store_partial(T* row, int first, int cols, const packed<T, N>& chunk) {
  const vec<T, N> values = unpack<T, N>(chunk);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (first + i < cols) row[first + i] = values.at[i];
  }
}

/// What thread `thread` of Threads holds: Items chunks and at most one element of the front. Elements past the row's
/// end have the value that was given for them. Threads >= N, and the row has at most Threads * N * Items elements.
template <typename T, int Threads, int N, int Items>
struct row_share {
  static_assert(Threads >= N);
  using element = T;
  using chunk = vec<T, N>;
  static constexpr int n = N;
  static constexpr int items = Items;
  template <typename U>
  using of = row_share<U, Threads, N, Items>;  // the same places of a row of U
  packed<T, N> chunks[Items];                  // a register for each 16-bit element would be twice as many
  T front;

  static __device__ __forceinline__ int column(int thread, int peel, int item) {
    return peel + (item * Threads + thread) * N;
  }

  /// Loads the row that gave `peel`.
  static __device__ __forceinline__ row_share load_row(const T* row, int cols, int thread, int peel, T past_end) {
    return load_if_aligned(true, row, cols, thread, peel, past_end);
  }
  /// Loads these columns of another tensor, whose chunks may have another phase.
  static __device__ __forceinline__ row_share load_beside(const T* row, int cols, int thread, int peel, T past_end) {
    return load_if_aligned(is_aligned<N * sizeof(T)>(row + peel), row, cols, thread, peel, past_end);
  }

  static __device__ __forceinline__ row_share load_if_aligned(bool aligned, const T* row, int cols, int thread,
                                                              int peel, T past_end) {
    row_share share;
    share.front = thread < min(peel, cols) ? row[thread] : past_end;  // a row may be cut short before its first chunk
    const packed<T, N> blank = load_partial<N>(row, cols, cols, past_end);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      share.chunks[item] = blank;
      if (aligned && first + N <= cols) share.chunks[item] = load_packed<N>(row + first);
    }
    if (aligned && (cols - peel) % N == 0) return share;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      if (aligned && first + N <= cols) continue;
      share.chunks[item] = load_partial<N>(row, first, cols, past_end);
    }
    return share;
  }

  __device__ __forceinline__ void store_row(T* row, int cols, int thread, int peel) const {
    if (thread < peel) row[thread] = front;
    const bool aligned = is_aligned<N * sizeof(T)>(row + peel);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      if (aligned && first + N <= cols) store_packed<N>(row + first, chunks[item]);
    }
    if (aligned && (cols - peel) % N == 0) return;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int first = column(thread, peel, item);
      if (aligned && first + N <= cols) continue;
      store_partial<N>(row, first, cols, chunks[item]);
    }
  }

  /// Returns the places of a row of U, with `make` of each element.
  template <typename U, typename Make>
  __device__ __forceinline__ row_share<U, Threads, N, Items> map(Make make) const {
    row_share<U, Threads, N, Items> made;
    made.front = make(front);
#pragma unroll
    for (int item = 0; item < Items; ++item) made.chunks[item] = pack(unpack<T, N>(chunks[item]).template map<U>(make));
    return made;
  }

  /// A row of V of the elements of two rows of different types.
  template <typename V, typename U, typename Make>
  __device__ __forceinline__ row_share<V, Threads, N, Items> zip(const row_share<U, Threads, N, Items>& other,
                                                                 Make make) const {
    row_share<V, Threads, N, Items> made;
    made.front = make(front, other.front);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const vec<T, N> mine = unpack<T, N>(chunks[item]);
      const vec<U, N> theirs = unpack<U, N>(other.chunks[item]);
      vec<V, N> result;
#pragma unroll
      for (int i = 0; i < N; ++i) result.at[i] = make(mine.at[i], theirs.at[i]);
      made.chunks[item] = pack(result);
    }
    return made;
  }

  /// Returns `make` of the elements of two rows.
  template <typename Make>
  __device__ __forceinline__ row_share map(const row_share& other, Make make) const {
    row_share made;
    made.front = make(front, other.front);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      chunk result;
#pragma unroll
      for (int i = 0; i < N; ++i)
        result.at[i] = make(unpack<T, N>(chunks[item]).at[i], unpack<T, N>(other.chunks[item]).at[i]);
      made.chunks[item] = pack(result);
    }
    return made;
  }

  template <typename Combine>
  __device__ __forceinline__ T reduce(Combine combine) const {
    T result = front;
#pragma unroll
    for (int item = 0; item < Items; ++item) result = combine(result, unpack<T, N>(chunks[item]).reduce(combine));
    return result;
  }
};

}  // namespace kiln
