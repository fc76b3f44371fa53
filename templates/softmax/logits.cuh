// What exp is taken of: the elements of a row as scale and mask leave them.
#pragma once

#include "common/row.cuh"
#include "softmax_state.cuh"

namespace kiln {

/// The words of the choice `mask`, as op.toml spells them.
enum class Mask { none, causal, additive, boolean };

/// A run-time size that is compared with rows, of which there are fewer.
__device__ __forceinline__ int small(long long size) { return static_cast<int>(min(size, 1ll << 30)); }

/// One row of x and the row of a mask that goes with it. Scale is left to the exponentials (`exp`) where nothing is
/// added to the elements, which are then logits in units of 1 / scale. A scale that is not above 0 makes every output
/// NaN.
template <typename T, Mask mask>
struct row_logits {
  const T* x;
  const T* bias;              // additive
  const unsigned char* keep;  // boolean
  int cols;                   // of the row
  int seen;                   // columns before this one count
  float scale;
  exponential exp;

  __device__ __forceinline__ row_logits(const T* row_of_x, const T* biases, const unsigned char* kept, int row,
                                        int columns, long long mask_row_stride, long long mask_rows, long long queries,
                                        float scale_given)
      : x(row_of_x), bias(nullptr), keep(nullptr), cols(columns), seen(columns), scale(scale_given) {
    constexpr float log2_e = 1.4426950408889634f;
    exp.rate = !(scale > 0.0f) ? __uint_as_float(0x7fffffffu) : mask == Mask::additive ? log2_e : scale * log2_e;
    if constexpr (mask == Mask::causal) seen = max(0, min(cols, row % small(queries) + 1 + cols - small(queries)));
    if constexpr (mask == Mask::additive) bias = biases + row % small(mask_rows) * mask_row_stride;
    if constexpr (mask == Mask::boolean) keep = kept + row % small(mask_rows) * mask_row_stride;
  }

  /// The thread's share of the columns from `first` on, -inf for those that do not count.
  template <int Threads, int N, int Items>
  __device__ __forceinline__ row_share<float, Threads, N, Items> load(int thread, int peel, int first = 0) const {
    using share = row_share<T, Threads, N, Items>;
    if constexpr (mask == Mask::causal) return load_seen<Threads, N, Items>(thread, peel, first);
    const int cols = seen - first;
    const share values = share::load_row(x + first, cols, thread, peel, from_float<T>(-infinity()));
    if constexpr (mask == Mask::additive) {
      const share biases = share::load_beside(bias + first, cols, thread, peel, from_float<T>(0.0f));
      return values.template zip<float>(
          biases, [scale = scale](T value, T shift) { return fmaf(to_float(value), scale, to_float(shift)); });
    } else if constexpr (mask == Mask::boolean) {
      using kept = row_share<unsigned char, Threads, N, Items>;
      const kept keeps = kept::load_beside(keep + first, cols, thread, peel, 0);
      return values.template zip<float>(
          keeps, [](T value, unsigned char counts) { return counts != 0 ? to_float(value) : -infinity(); });
    } else {
      return values.template map<float>([](T value) { return to_float(value); });
    }
  }

 private:
  /// The chunk that `seen` falls into is read whole, and masked by the one thread that has it. Element by element it
  /// would be the last that a row waits for.
  template <int Threads, int N, int Items>
  __device__ __forceinline__ row_share<float, Threads, N, Items> load_seen(int thread, int peel, int first) const {
    using share = row_share<T, Threads, N, Items>;
    const int here = seen - first, whole = peel + (max(here - peel, 0) + N - 1) / N * N;
    const share values = share::load_row(x + first, min(cols - first, whole), thread, peel, from_float<T>(-infinity()));
    auto logits = values.template map<float>([](T value) { return to_float(value); });
    if (thread >= here) logits.front = -infinity();
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const int begin = share::column(thread, peel, item);
      if (begin + N <= here || begin >= whole) continue;
      vec<float, N> some = unpack<float, N>(logits.chunks[item]);
#pragma unroll
      for (int i = 0; i < N; ++i) some.at[i] = begin + i < here ? some.at[i] : -infinity();
      logits.chunks[item] = pack(some);
    }
    return logits;
  }
};

}  // namespace kiln
