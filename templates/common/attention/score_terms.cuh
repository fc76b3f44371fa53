// Terms that are added to scores, in the fragments that softmax_rows.cuh describes. Scores are in units of 1 / rate to base 2.
#pragma once

#include "common/attention/softmax_rows.cuh"

namespace kiln::attention {

/// ALiBi: each place between a query and the diagonal, along the keys, takes the head's slope from a logit.
template <Alibi alibi>
struct Distances {
  float slope;        // of a score
  float diagonal[2];  // columns where the thread's two rows meet the diagonal, from the thread's first column on

  /// `column`: where the first of the rows meets it, from the tile's first column on.
  __device__ __forceinline__ Distances(const ScoreInputs& inputs, int head, float rate, int column) {
    if constexpr (alibi == Alibi::head) {
      slope = inputs.slopes[head] * (-log2_e / rate);
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

/// Terms of two queries of a thread, 8 apart, whose keys are columns.
template <typename Form>
class RowTerms {
 public:
  __device__ __forceinline__ RowTerms(const ScoreInputs& inputs, const Scores<Form::soft_cap>& to_scores,
                                      const Visible<Form::mask>& visible, int head, int query)
      : diagonal_(query + visible.diagonal), distances_(inputs, head, to_scores.rate, 0) {}

  /// Those of the keys from `first` on.
  __device__ __forceinline__ Distances<Form::alibi> at(int first) const {
    Distances<Form::alibi> terms = distances_;
    terms.move(diagonal_ - first);
    return terms;
  }
  template <int count>
  __device__ __forceinline__ void add_to(float (&scores)[count], int first) const {
    if constexpr (Form::alibi == Alibi::none) return;
    const Distances<Form::alibi> terms = at(first);
#pragma unroll
    for (int i = 0; i < count; ++i) scores[i] = terms.add(scores[i], i);
  }

 private:
  int diagonal_;  // the key where the first query meets it
  Distances<Form::alibi> distances_;
};

}  // namespace kiln::attention
