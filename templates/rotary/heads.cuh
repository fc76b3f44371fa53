// A thread turns the same elements of several heads of a token, so that cosines and sines are read once for them.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/index.cuh"
#include "common/length.cuh"
#include "common/vector.cuh"

namespace kiln {

/// The words of the choices, as op.toml spells them. Elements i and i + rotary_dim / 2 are a pair, or 2i and 2i + 1.
enum class Layout { half, interleaved };
enum class Direction { forward, backward };

/// Some heads of one token, `count` of them.
template <typename T>
struct head_rows {
  const T* x;
  T* y;
  long long x_stride, y_stride;
  int count;

  __device__ __forceinline__ head_rows from(int column) const {
    return {x + column, y + column, x_stride, y_stride, count};
  }
  /// Whether N neighbours of every head are one access.
  template <int N>
  __device__ __forceinline__ bool aligned() const {
    return is_aligned<N * sizeof(T)>(x) && is_aligned<N * sizeof(T)>(y) && (x_stride | y_stride) % N == 0;
  }
};

template <int N>
__device__ __forceinline__ vec<float, N> load_floats(const float* from) {
  constexpr int width = N < 4 ? N : 4;
  vec<float, N> values;
#pragma unroll
  for (int first = 0; first < N; first += width) {
    const vec<float, width> part = load<width>(from + first);
#pragma unroll
    for (int i = 0; i < width; ++i) values.at[first + i] = part.at[i];
  }
  return values;
}

template <typename T>
__device__ __forceinline__ void turn(T& a, T& b, float cos, float sin) {
  const float before = to_float(a), after = to_float(b);
  a = from_float<T>(before * cos - after * sin);
  b = from_float<T>(after * cos + before * sin);
}

/// Cosines and sines from one column on, of a position that is yet to be read.
template <typename Index>
struct angles {
  const float* cos;
  const float* sin;
  long long row_stride;
  const Index* position;
  Index last;                  // row of the tables
  unsigned long long* report;  // for row_in_table()

  __device__ __forceinline__ long long row() const { return row_in_table(*position, last, report) * row_stride; }
};

/// N neighbours of each head, and as many half a turn further where those are what they are paired with (`apart`
/// elements), by `pairs` angles.
template <typename T, Layout layout, Direction direction, int N, int Heads>
struct rotary_chunk {
  static constexpr int pairs = layout == Layout::half ? N : N / 2;
  static_assert(pairs >= 1);
  static constexpr float sign = direction == Direction::forward ? 1.0f : -1.0f;

  template <typename Index>
  static __device__ __forceinline__ void turn_whole(const head_rows<T>& rows, int apart, const angles<Index>& by) {
    packed<T, N> low[Heads], high[Heads];  // high: of halves only
#pragma unroll
    for (int i = 0; i < Heads; ++i) {
      if (i >= rows.count) break;
      low[i] = load_packed<N>(rows.x + i * rows.x_stride);
      if constexpr (layout == Layout::half) high[i] = load_packed<N>(rows.x + i * rows.x_stride + apart);
    }
    const long long table = by.row();  // after the loads that do not wait for it
    const vec<float, pairs> c = load_floats<pairs>(by.cos + table), s = load_floats<pairs>(by.sin + table);
    launch_dependents();
#pragma unroll
    for (int i = 0; i < Heads; ++i) {
      if (i >= rows.count) break;
      vec<T, N> first = unpack<T, N>(low[i]), second = first;
      if constexpr (layout == Layout::half) second = unpack<T, N>(high[i]);
#pragma unroll
      for (int pair = 0; pair < pairs; ++pair) {
        if constexpr (layout == Layout::half) {
          turn(first.at[pair], second.at[pair], c.at[pair], sign * s.at[pair]);
        } else {
          turn(first.at[2 * pair], first.at[2 * pair + 1], c.at[pair], sign * s.at[pair]);
        }
      }
      store(rows.y + i * rows.y_stride, first);
      if constexpr (layout == Layout::half) store(rows.y + i * rows.y_stride + apart, second);
    }
  }

  /// The first `count` pairs, element by element.
  template <typename Index>
  static __device__ __forceinline__ void turn_pairs(const head_rows<T>& rows, int apart, const angles<Index>& by,
                                                    int count) {
    const float *cos = by.cos + by.row(), *sin = by.sin + by.row();
    constexpr int step = layout == Layout::half ? 1 : 2;
#pragma unroll 1
    for (int pair = 0; pair < count; ++pair) {
#pragma unroll 1
      for (int i = 0; i < rows.count; ++i) {
        const T* from = rows.x + i * rows.x_stride + pair * step;
        T* to = rows.y + i * rows.y_stride + pair * step;
        T a = from[0], b = from[layout == Layout::half ? apart : 1];
        turn(a, b, cos[pair], sign * sin[pair]);
        to[0] = a;
        to[layout == Layout::half ? apart : 1] = b;
      }
    }
  }

  static __device__ __forceinline__ void copy(const head_rows<T>& rows, int count) {
    if (count >= N && rows.template aligned<N>()) {
      packed<T, N> values[Heads];
#pragma unroll
      for (int i = 0; i < Heads; ++i) {
        if (i < rows.count) values[i] = load_packed<N>(rows.x + i * rows.x_stride);
      }
#pragma unroll
      for (int i = 0; i < Heads; ++i) {
        if (i < rows.count) store_packed<N>(rows.y + i * rows.y_stride, values[i]);
      }
    } else {
#pragma unroll 1
      for (int at = 0; at < rows.count * min(count, N); ++at) {
        const int i = at / min(count, N), column = at % min(count, N);
        rows.y[i * rows.y_stride + column] = rows.x[i * rows.x_stride + column];
      }
    }
  }
};

/// grid: a thread for each chunk of each group of Heads heads of each token. The first chunks of a head turn N pairs
/// each (half) or N elements (interleaved). The other chunks copy N elements each from rotary_dim on. The output y may
/// be x.
template <typename T, typename Index, Layout layout, Direction direction, int Threads, int N, int Heads>
__global__ __launch_bounds__(Threads) void rotary_heads(const T* x, const float* cos, const float* sin,
                                                        const Index* positions, T* y, axis_length tokens, int heads,
                                                        int dim, int rotary_dim, long long x_token_stride,
                                                        long long x_head_stride, long long y_token_stride,
                                                        long long y_head_stride, long long table_rows,
                                                        long long table_row_stride, unsigned long long* report) {
  using chunk_of = rotary_chunk<T, layout, direction, N, Heads>;
  wait_for_predecessor();
  const int half = rotary_dim / 2, turned = layout == Layout::half ? half : rotary_dim;
  const unsigned turning = (turned + N - 1) / N, chunks = turning + (dim - rotary_dim + N - 1) / N;
  const unsigned a_token = chunks * ((heads + Heads - 1) / Heads);
  const unsigned long long begin = static_cast<unsigned long long>(blockIdx.x) * Threads;
  const unsigned index = static_cast<unsigned>(begin % a_token) + threadIdx.x;
  const unsigned token = static_cast<unsigned>(begin / a_token) + index / a_token;
  if (token >= static_cast<unsigned>(tokens.read())) return;

  const int head = static_cast<int>(index % a_token / chunks * Heads);
  const int chunk = static_cast<int>(index % a_token % chunks);
  const head_rows<T> rows{x + token * x_token_stride + head * x_head_stride,
                          y + token * y_token_stride + head * y_head_stride, x_head_stride, y_head_stride,
                          min(Heads, heads - head)};
  if (chunk >= turning) {
    const int first = rotary_dim + (chunk - static_cast<int>(turning)) * N;
    chunk_of::copy(rows.from(first), dim - first);
    return;
  }
  const int first = chunk * N, first_pair = chunk * chunk_of::pairs;
  const angles<Index> by{cos + first_pair,
                         sin + first_pair,
                         table_row_stride,
                         positions + token,
                         last_row<Index>(table_rows),
                         (head | chunk) == 0 ? report : nullptr};
  const head_rows<T> here = rows.from(first);
  constexpr int width = chunk_of::pairs < 4 ? chunk_of::pairs : 4;  // of a load of angles
  const bool whole = first + N <= turned && here.template aligned<N>() && (layout != Layout::half || half % N == 0) &&
                     table_row_stride % width == 0 && is_aligned<width * 4>(by.cos) && is_aligned<width * 4>(by.sin);
  if (whole) {
    chunk_of::turn_whole(here, half, by);
  } else {
    chunk_of::turn_pairs(here, half, by, min(chunk_of::pairs, half - first_pair));
  }
}

}  // namespace kiln
