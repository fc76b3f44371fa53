// Which weights dropout keeps: a function of seed, offset, sequence, head, query and key alone.
//
// 16 scores share a draw of 16 bytes, one each. They are those of queries q, q + 1, q + 8, q + 9 and of keys k, k + 1,
// k + 8, k + 9. Here q and k are even, and q % 16 and k % 16 are under 8. Whether queries or keys are the rows of a
// fragment (softmax_rows.cuh), two lanes hold them.
#pragma once

#include "common/attention/problem.cuh"
#include "common/philox.cuh"
#include "common/reduce.cuh"

namespace kiln::attention {

/// p in units of 1 / 256: scores whose byte is less are dropped. Weights that are kept are multiplied by `scale`.
struct DropoutRate {
  unsigned dropped;
  float scale;

  explicit __device__ __forceinline__ DropoutRate(float p)
      : dropped(min(static_cast<unsigned>(fmaxf(p, 0.0f) * 256.0f + 0.5f), 255u)),
        scale(256.0f / static_cast<float>(256 - dropped)) {}
};

/// The draws of one head. Packed sequences are told apart by their first query's place in the tensor.
struct DropoutDraws {
  unsigned seed_low, seed_high, offset_low, offset_high, plane_and_head, first_query;

  __device__ __forceinline__ DropoutDraws(const long long* seed, const Sequence& of, int head)
      : seed_low(static_cast<unsigned>(seed[0])),
        seed_high(static_cast<unsigned>(seed[0] >> 32)),
        offset_low(static_cast<unsigned>(seed[1])),
        offset_high(static_cast<unsigned>(seed[1] >> 32)),
        plane_and_head(static_cast<unsigned>(of.plane) << 10 | static_cast<unsigned>(head)),
        first_query(static_cast<unsigned>(of.first_query)) {}

  /// For the 16 scores from `query` and `key` on: word 2 * (query % 2) + key % 2, byte
  /// 2 * (query / 8 % 2) + key / 8 % 2. The counter holds, from its top bit down: the offset, 16 bits of the plane, 10
  /// of the head, 20 of the query's place. The last 18 bits are the key's group.
  __device__ __forceinline__ uint4 at(int query, int key) const {
    const unsigned place = first_query + static_cast<unsigned>(query);
    const unsigned group = static_cast<unsigned>(key) / 16 * 4 + static_cast<unsigned>(key) % 16 / 2;
    return philox_4x32_10(make_uint4(place << 18 | group, plane_and_head << 6 | place >> 14, offset_low, offset_high),
                          seed_low, seed_high);
  }
  /// The byte that is drawn for one score.
  __device__ __forceinline__ unsigned byte_of(int query, int key) const {
    const uint4 drawn = at(query & ~9, key & ~9);
    const unsigned word = query % 2 == 0 ? (key % 2 == 0 ? drawn.x : drawn.y) : key % 2 == 0 ? drawn.z : drawn.w;
    return word >> 8 * (query / 8 % 2 * 2 + key / 8 % 2) & 255;
  }
};

/// Which of a thread's scores in a fragment are kept: one bit each.
template <bool rows_are_queries, int count>
class KeptBits {
 public:
  /// `row`: the first of the thread's two; `column`: the tile's first, a multiple of 16. All lanes of a warp call it together.
  __device__ __forceinline__ KeptBits(const DropoutDraws& draws, const DropoutRate& rate, int row, int column) {
    const unsigned dropped = rate.dropped * 0x01010101u;
    const bool odd = row & 1;
    column += static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i + 16 <= count; i += 16) {  // a lane draws for 16 columns, the lane 4 from it for the next 16
      unsigned own[2], others[2];
      draw(own, others, draws, odd, row & ~1, column + i * 2 + (odd ? 16 : 0));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const unsigned got = shuffle_xor(others[j], 4);
        put(i, j, dropped, odd ? got : own[j]);
        put(i + 8, j, dropped, odd ? own[j] : got);
      }
    }
    if constexpr (count % 16 != 0) {
      unsigned own[2], others[2];
      draw(own, others, draws, odd, row & ~1, column + (count - 8) * 2);
#pragma unroll
      for (int j = 0; j < 2; ++j) put(count - 8, j, dropped, own[j]);
    }
  }

  /// The fragment's value i, or 0.
  __device__ __forceinline__ float keep(float value, int i) const {
    const int high = i / 2 % 2, next = i / 4 % 2;  // 8 rows down, 8 columns on
    const int byte = rows_are_queries ? 2 * high + next : 2 * next + high;
    return bits_[i / 32] >> (8 * byte + i / 8 % 4 * 2 + i % 2) & 1 ? value : 0.0f;
  }

 private:
  /// The words of a draw for this lane's parity and for the other, by the columns' parity.
  static __device__ __forceinline__ void draw(unsigned (&own)[2], unsigned (&others)[2], const DropoutDraws& draws,
                                              bool odd, int row, int column) {
    const uint4 drawn = rows_are_queries ? draws.at(row, column) : draws.at(column, row);
    const unsigned even_rows[2] = {drawn.x, rows_are_queries ? drawn.y : drawn.z},
                   odd_rows[2] = {rows_are_queries ? drawn.z : drawn.y, drawn.w};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      own[j] = odd ? odd_rows[j] : even_rows[j];
      others[j] = odd ? even_rows[j] : odd_rows[j];
    }
  }
  /// Those of the eight scores from `first` on whose columns have parity `j`, by the bytes of `word`.
  __device__ __forceinline__ void put(int first, int j, unsigned dropped, unsigned word) {
    constexpr unsigned tops = 0x80808080u;
    const unsigned low_bits = (word | tops) - (dropped & ~tops);  // top bits: whether the other seven are no less
    const unsigned kept = ((word & ~dropped) | (~(word ^ dropped) & low_bits)) & tops;
    bits_[first / 32] |= kept >> (7 - (first / 8 % 4 * 2 + j));
  }

  unsigned bits_[(count + 31) / 32] = {};
};

/// Without dropout.
struct AllKept {
  __device__ __forceinline__ float keep(float value, int) const { return value; }
};

/// Keeps or drops each value of a fragment.
template <typename Kept, int count>
__device__ __forceinline__ void keep_all(float (&values)[count], const Kept& kept) {
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = kept.keep(values[i], i);
}

/// What kept weights are multiplied by.
template <typename Form>
__device__ __forceinline__ float kept_scale(const ScoreInputs<typename Form::T>& inputs) {
  return Form::dropout == Dropout::philox ? DropoutRate(inputs.dropout_p).scale : 1.0f;
}

/// What is kept of a fragment: KeptBits, or AllKept without dropout.
template <typename Form, bool rows_are_queries, int count>
__device__ __forceinline__ auto kept_of(const ScoreInputs<typename Form::T>& inputs, const Sequence& of, int head,
                                        int row, int column) {
  if constexpr (Form::dropout == Dropout::none) {
    return AllKept{};
  } else {
    return KeptBits<rows_are_queries, count>(DropoutDraws(inputs.dropout_seed, of, head), DropoutRate(inputs.dropout_p),
                                             row, column);
  }
}

}  // namespace kiln::attention
