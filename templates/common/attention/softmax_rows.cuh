// The softmax of rows whose scores come block by block, in the fragments that tensor cores leave.
//
// A thread holds parts of two rows, 8 rows apart. In each 8 columns it has columns 8 * j + 2 * (lane % 4) and the next.
// First come two of the first row, scores[4 * j] and the next, then two of the second. The four lanes of a quad share
// these rows.
#pragma once

#include "common/attention/problem.cuh"
#include "common/mma.cuh"
#include "common/reduce.cuh"
#include "common/vector.cuh"

namespace kiln::attention {

inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// 2^x; 0 where it would be subnormal.
__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
/// tanh(x), wrong by 2^-11 of itself at most.
__device__ __forceinline__ float tanh_approx(float x) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// From products of queries and keys to scores, which are logits in units of 1 / rate to base 2: exp(logit) is
/// 2^(rate * score).
template <SoftCap soft_cap>
struct Scores {
  float rate, inner;

  __device__ __forceinline__ Scores(float scale, float cap)
      : rate((soft_cap == SoftCap::tanh ? cap : scale) * log2_e), inner(scale / cap) {}

  /// A capped score is wrong by 2^-11 of itself at most, and the slope 1 - tanh^2 by 2^-10.
  template <int count>
  __device__ __forceinline__ void cap(float (&scores)[count]) const {
    if constexpr (soft_cap == SoftCap::tanh) {
#pragma unroll
      for (int i = 0; i < count; ++i) scores[i] = tanh_approx(scores[i] * inner);
    }
  }
};

/// What a thread's two rows see of a sequence's keys: those of query `row`, and of the one `apart` from it.
struct RowLimits {
  int begin[2], end[2];

  template <Mask mask>
  __device__ __forceinline__ RowLimits(const Visible<mask>& visible, int row, int apart = 8)
      : begin{visible.begin(row), visible.begin(row + apart)}, end{visible.end(row), visible.end(row + apart)} {}

  /// -inf, or `instead`, for what a row does not see of the keys from `first` on.
  template <Mask mask, int count>
  __device__ __forceinline__ void apply(float (&scores)[count], int first, float instead = -infinity()) const {
    const int own = first + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int row = i / 2 % 2, column = i / 4 * 8 + i % 2;
      const bool seen = column < end[row] - own && (mask != Mask::window || column >= begin[row] - own);
      scores[i] = seen ? scores[i] : instead;
    }
  }
};

struct RowEnd {
  float factor;  // turns the row's sum of weighted values into the result
  float lse;     // natural logarithm of the sum of all exp(logit)
};

/// When the origin of a row's exponentials, its largest score, moves: with each block that has a larger one, or only once an exponential would
/// pass 2^8. by_warp: in any row of the warp, which all lanes await before their exponentials. by_row: in that row.
enum class Lazy { no, by_warp, by_row };

struct Nothing {
  __device__ __forceinline__ void operator()(float) const {}
};

struct SoftmaxRows {
  static constexpr float lazy_most = 8;           // exponentials from an origin that stays may come to 2^8
  float largest[2] = {-infinity(), -infinity()};  // score so far
  float sum[2] = {0, 0};                          // of this thread's exponentials, from `largest`

  /// Takes a block of scores, turns them into exponentials, and says what earlier sums are to be multiplied by, and whether by
  /// anything but 1 in any row of the warp. `some_see_none`: a row may not have seen any key yet. `lazy`: `largest` may stay
  /// what it was; the end divides by sums that have the same factor. `raised`: exponentials, and so their sum, are 2^raised
  /// times what they would be; finish() divides it out. Calls amid(x) once `place` exponentials of the first row are begun,
  /// unless `place` is 0. x depends on them and is never under 0.
  template <bool some_see_none, Lazy lazy, int raised = 0, int place = 0, int count, typename Amid = Nothing>
  __device__ __forceinline__ bool absorb(float (&scores)[count], float rate, float (&factor)[2], Amid amid = {}) {
    static_assert(place % 2 == 0 && place <= count / 2);
    const float now[2] = {largest_of(scores, 0), largest_of(scores, 1)};
    bool moves = true, some_move = false;
    if constexpr (lazy == Lazy::by_warp) {
      moves = __ballot_sync(full_warp,
                            (now[0] - largest[0]) * rate > lazy_most || (now[1] - largest[1]) * rate > lazy_most) != 0;
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float before = largest[row];
      if constexpr (lazy == Lazy::by_row) {
        moves = (now[row] - before) * rate > lazy_most;
        some_move = some_move || moves;
      }
      if (moves) largest[row] = now[row];
      const float origin = some_see_none && largest[row] == -infinity() ? 0.0f : largest[row] * rate;
      const float offset = raised == 0 ? -origin : raised - origin;
      factor[row] = moves ? exp2_approx(before * rate - origin) : 1.0f;
      float part[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < count; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[i + 2 * row + j];
          score = exp2_approx(fmaf(score, rate, offset));
          part[j] += score;
        }
        if constexpr (place > 0) {
          if (row == 0 && i / 2 + 2 == place) amid(fmaf(sum[0], factor[0], part[0]));
        }
      }
      sum[row] = sum[row] * factor[row] + (part[0] + part[1]);
    }
    if constexpr (lazy == Lazy::by_row) moves = __ballot_sync(full_warp, some_move) != 0;
    return moves;
  }

  /// After the last block. A row without keys and sink gives 0 and -inf.
  template <Sinks sinks, int raised = 0>
  __device__ __forceinline__ RowEnd finish(int row, float rate, float sink) const {
    const float total = warp_reduce<4>(sum[row], add{}), origin = largest[row] * rate - raised;
    if constexpr (sinks == Sinks::none) return {total == 0.0f ? 0.0f : 1.0f / total, origin * ln_2 + logf(total)};
    const float top = fmaxf(origin, sink * log2_e);
    if (top == -infinity()) return {0.0f, top};
    const float with_sink = total * exp2_approx(origin - top) + exp2_approx(sink * log2_e - top);
    return {exp2_approx(origin - top) / with_sink, top * ln_2 + logf(with_sink)};
  }

 private:
  /// The largest scores of the row so far and of its part in these scores.
  template <int count>
  __device__ __forceinline__ float largest_of(const float (&scores)[count], int row) const {
    float top[2] = {scores[2 * row], scores[2 * row + 1]};
#pragma unroll
    for (int i = 4; i < count; i += 4) {
      top[0] = fmaxf(top[0], scores[i + 2 * row]);
      top[1] = fmaxf(top[1], scores[i + 2 * row + 1]);
    }
    return fmaxf(largest[row], warp_reduce<4>(fmaxf(top[0], top[1]), maximum{}));
  }
};

/// Multiplies sums that lie as scores do by a factor a row.
template <int count>
__device__ __forceinline__ void scale_rows(float (&sums)[count], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i] *= factor[i / 2 % 2];
}

/// The weights of 16 neighbouring keys, from 16 * step on, as a matrix instruction takes them for its a.
template <typename T, int count>
__device__ __forceinline__ void pack_weights(unsigned (&a)[4], const float (&weights)[count], int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = cvt_rn_x2<T>(weights[8 * step + 2 * i], weights[8 * step + 2 * i + 1]);
}

/// One of two registers by a bit that the compiler does not know.
__device__ __forceinline__ unsigned select(bool second, unsigned a, unsigned b) { return second ? b : a; }

/// Lane q of a quad gives word i of chunk j as words[j] of lane i, and gets chunk q.
__device__ __forceinline__ uint4 transpose_in_quad(const unsigned (&words)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  unsigned low[2], rest[2];  // of chunks q / 2 * 2 and the next: words of this lane, and of the lane two from it
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned kept = select(high, words[i], words[i + 2]), sent = select(high, words[i + 2], words[i]);
    const unsigned got = shuffle_xor(sent, 2);
    low[i] = select(high, kept, got);
    rest[i] = select(high, got, kept);
  }
  const unsigned low_got = shuffle_xor(select(odd, low[1], low[0]), 1), low_kept = select(odd, low[0], low[1]);
  const unsigned rest_got = shuffle_xor(select(odd, rest[1], rest[0]), 1), rest_kept = select(odd, rest[0], rest[1]);
  return make_uint4(select(odd, low_kept, low_got), select(odd, low_got, low_kept), select(odd, rest_kept, rest_got),
                    select(odd, rest_got, rest_kept));
}

/// Rounds one of the thread's two rows (`row`) of sums and stores it at `to` if `exists`. All lanes of a warp call it
/// together. `to` is a multiple of 16 bytes.
template <typename T, int count>
__device__ __forceinline__ void store_row(T* to, const float (&sums)[count], int row, float factor, bool exists) {
  constexpr int chunks = count / 4, whole = chunks / 4 * 4;  // of 8 columns
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const auto word = [&](int chunk) {
    return cvt_rn_x2<T>(sums[4 * chunk + 2 * row] * factor, sums[4 * chunk + 2 * row + 1] * factor);
  };
#pragma unroll
  for (int chunk = 0; chunk < whole; chunk += 4) {
    const unsigned words[4] = {word(chunk), word(chunk + 1), word(chunk + 2), word(chunk + 3)};
    const uint4 own = transpose_in_quad(words);
    if (exists) *reinterpret_cast<uint4*>(to + (chunk + lane) * 8) = own;
  }
#pragma unroll
  for (int chunk = whole; chunk < chunks; ++chunk) {
    if (exists) *reinterpret_cast<unsigned*>(to + chunk * 8 + lane * 2) = word(chunk);
  }
}

/// As store_row, of both rows at once. Lanes exchange all they have before any of them stores, so that branches do not part the exchanges.
template <typename T, int count>
__device__ __forceinline__ void store_rows(T* const (&to)[2], const float (&sums)[count], const float (&factor)[2],
                                           const bool (&exists)[2]) {
  constexpr int chunks = count / 4, groups = chunks / 4;  // of 8 columns, and of 32
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const auto word = [&](int chunk, int row) {
    return cvt_rn_x2<T>(sums[4 * chunk + 2 * row] * factor[row], sums[4 * chunk + 2 * row + 1] * factor[row]);
  };
  uint4 own[2][groups > 0 ? groups : 1];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
#pragma unroll
    for (int i = 0; i < groups; ++i) {
      const unsigned words[4] = {word(4 * i, row), word(4 * i + 1, row), word(4 * i + 2, row), word(4 * i + 3, row)};
      own[row][i] = transpose_in_quad(words);
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if (!exists[row]) continue;
#pragma unroll
    for (int i = 0; i < groups; ++i) *reinterpret_cast<uint4*>(to[row] + (4 * i + lane) * 8) = own[row][i];
#pragma unroll
    for (int chunk = 4 * groups; chunk < chunks; ++chunk)
      *reinterpret_cast<unsigned*>(to[row] + chunk * 8 + lane * 2) = word(chunk, row);
  }
}

}  // namespace kiln::attention
