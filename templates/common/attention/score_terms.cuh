// Terms that are added to scores, in the fragments that softmax_rows.cuh describes. Scores are in units of 1 / rate to base 2.
#pragma once

#include "common/attention/dropout.cuh"
#include "common/attention/softmax_rows.cuh"

namespace kiln::attention {

/// ALiBi: each place between a query and the diagonal, along the keys, takes the head's slope from a logit.
template <Alibi alibi>
struct Distances {
  float slope;        // of a score
  float diagonal[2];  // columns where the thread's two rows meet the diagonal, from the thread's first column on

  /// `column`: where the first of the rows meets it, from the tile's first column on.
  __device__ __forceinline__ Distances(const float* slopes, int head, float rate, int column) {
    if constexpr (alibi == Alibi::head) {
      slope = slopes[head] * (-log2_e / rate);
      move(column);
    }
  }
  /// To another tile of the same head.
  __device__ __forceinline__ void move(int column) {
    if constexpr (alibi == Alibi::head) {
      diagonal[0] = static_cast<float>(column - static_cast<int>(threadIdx.x) % 4 * 2);
      diagonal[1] = diagonal[0] + 8;
    }
  }
  /// To the fragment's score i.
  __device__ __forceinline__ float add(float score, int i) const {
    if constexpr (alibi == Alibi::none) return score;
    const int row = i / 2 % 2, column = i / 4 * 8 + i % 2;
    return fmaf(slope, fabsf(diagonal[row] - static_cast<float>(column)), score);
  }
};

/// Where a head's bias lies: that of query i and key j at i * row_stride + j. Row strides are even, `of_head` is a multiple of 4 bytes.
template <typename T>
struct HeadBias {
  const T* of_head;
  long long row_stride;
  int queries, keys;  // that exist

  __device__ __forceinline__ HeadBias(const ScoreInputs<T>& inputs, const Sequence& of, int head)
      : of_head(inputs.bias.at + of.plane * inputs.bias.batch_stride + head * inputs.bias.head_stride),
        row_stride(inputs.bias.row_stride),
        queries(of.queries),
        keys(of.keys) {}
};

/// The bias of a fragment's scores, two neighbours in a word; 0 where there is no such query or key.
template <typename T, Bias bias, int count>
struct BiasTile {
  unsigned pairs[bias == Bias::tensor ? count / 2 : 1];
  float unit;  // of a score

  /// Loads the biases of rows of queries, from the thread's first, `query`, by columns of keys, from the tile's first, `key`.
  __device__ __forceinline__ void load(const HeadBias<T>& from, float rate, int query, int key) {
    unit = log2_e / rate;
    key += static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const T* const of_row = from.of_head + (query + 8 * row) * from.row_stride + key;
      const int left = query + 8 * row < from.queries ? from.keys - key : 0;  // keys from the thread's first column on
#pragma unroll
      for (int chunk = 0; chunk < count / 4; ++chunk) {
        unsigned& pair = pairs[2 * chunk + row];
        pair = 0;
        if (8 * chunk + 1 < left) {
          pair = *reinterpret_cast<const unsigned*>(of_row + 8 * chunk);
        } else if (8 * chunk < left) {
          pair = *reinterpret_cast<const unsigned short*>(of_row + 8 * chunk);
        }
      }
    }
  }
  /// Loads the biases of rows of keys by columns of queries.
  __device__ __forceinline__ void load_transposed(const HeadBias<T>& from, float rate, int key, int query) {
    unit = log2_e / rate;
    query += static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const int row = i / 2 % 2, column = i / 4 * 8;
      const T* const of_pair = from.of_head + (query + column) * from.row_stride + key + 8 * row;
      const int left = key + 8 * row < from.keys ? from.queries - query : 0;
      unsigned low = 0, high = 0;
      if (column < left) low = *reinterpret_cast<const unsigned short*>(of_pair);
      if (column + 1 < left) high = *reinterpret_cast<const unsigned short*>(of_pair + from.row_stride);
      pairs[i / 2] = low | high << 16;
    }
  }
  __device__ __forceinline__ float add(float score, int i) const {
    if constexpr (bias == Bias::none) {
      return score;
    } else {
      const float logit = to_floats<T, 2>(__builtin_bit_cast(packed<T, 2>, pairs[i / 2])).at[i % 2];
      return logit < hiding_bias ? -infinity() : fmaf(logit, unit, score);
    }
  }
};

/// All terms of a tile.
template <typename Form, int count>
struct TileTerms {
  Distances<Form::alibi> distances;
  BiasTile<typename Form::T, Form::bias, count> bias;

  /// To the fragment's score i.
  __device__ __forceinline__ float add(float score, int i) const { return bias.add(distances.add(score, i), i); }
  __device__ __forceinline__ void add_to(float (&scores)[count]) const {
    if constexpr (!Form::has_terms) return;
#pragma unroll
    for (int i = 0; i < count; ++i) scores[i] = add(scores[i], i);
  }
};

/// What a thread takes of them, and of dropout, for two queries, 8 apart, whose keys are columns.
template <typename Form>
class RowTerms {
 public:
  using T = typename Form::T;

  __device__ __forceinline__ RowTerms(const ScoreInputs<T>& inputs, const Scores<Form::soft_cap>& to_scores,
                                      const Visible<Form::mask>& visible, const Sequence& of, int head, int query)
      : inputs_(inputs),
        of_(of),
        head_(head),
        query_(query),
        diagonal_(query + visible.diagonal),
        rate_(to_scores.rate),
        distances_(inputs.slopes, head, to_scores.rate, 0),
        bias_(inputs, of, head) {}

  /// Those of the 2 * count keys from `first` on, which are read now.
  template <int count>
  __device__ __forceinline__ TileTerms<Form, count> at(int first) const {
    TileTerms<Form, count> terms{distances_, {}};
    terms.distances.move(diagonal_ - first);
    if constexpr (Form::bias == Bias::tensor) terms.bias.load(bias_, rate_, query_, first);
    return terms;
  }

  /// Which weights of these keys are kept. All lanes of a warp call it together.
  template <int count>
  __device__ __forceinline__ auto kept(int first) const {
    return kept_of<Form, true, count>(inputs_, of_, head_, query_, first);
  }
  __device__ __forceinline__ float scale_of_kept() const { return kept_scale<Form>(inputs_); }

 private:
  ScoreInputs<T> inputs_;
  Sequence of_;
  int head_;
  int query_, diagonal_;  // the first query, and the key where it meets the diagonal
  float rate_;
  Distances<Form::alibi> distances_;
  HeadBias<T> bias_;
};

/// What a thread takes of them for two keys, 8 apart, from `key` on, whose queries from `query` on are columns.
template <typename Form, int count>
__device__ __forceinline__ TileTerms<Form, count> terms_of_keys(const ScoreInputs<typename Form::T>& inputs, float rate,
                                                                const Visible<Form::mask>& visible, const Sequence& of,
                                                                int head, int key, int query) {
  TileTerms<Form, count> terms{{inputs.slopes, head, rate, key - visible.diagonal - query}, {}};
  if constexpr (Form::bias == Bias::tensor)
    terms.bias.load_transposed(HeadBias<typename Form::T>(inputs, of, head), rate, key, query);
  return terms;
}

}  // namespace kiln::attention
