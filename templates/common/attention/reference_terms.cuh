// Which sequence a row is of, what is added to logits, and what dropout does, in double, for the references of attention's ops.
#pragma once

#include "common/attention/dropout.cuh"
#include "common/types.cuh"

namespace kiln::attention {

/// The sequence that has a row of q (or of k), which becomes the row in it; false where none has it.
template <Layout layout, bool of_queries>
__device__ bool find_sequence(const Sequences& sequences, long long block, int& row, Sequence& of) {
  const int rows = of_queries ? sequences.queries : sequences.keys;
  int index = layout == Layout::dense ? static_cast<int>(block / rows) : 0;
  row = static_cast<int>(layout == Layout::dense ? block % rows : block);
  of = sequences.at<layout>(index);
  if constexpr (layout != Layout::dense) {
    const auto first = [&] { return of_queries ? of.first_query : of.first_key; };
    while (row < first() || row >= first() + (of_queries ? of.queries : of.keys)) {
      if (++index == sequences.count) return false;  // before the first offset, or from the last one on
      of = sequences.at<layout>(index);
    }
    row -= first();
  }
  return true;
}

/// Returns what is added to the logit of a query and a key of a sequence.
template <typename Form>
__device__ double reference_terms(const ScoreInputs<typename Form::T>& inputs, const Visible<Form::mask>& visible,
                                  const Sequence& of, int head, int query, int key) {
  double sum = 0;
  if constexpr (Form::alibi == Alibi::head) sum -= double{inputs.slopes[head]} * abs(query + visible.diagonal - key);
  if constexpr (Form::bias == Bias::tensor) {
    const double bias = to_double(inputs.bias.at[of.plane * inputs.bias.batch_stride + head * inputs.bias.head_stride +
                                                 query * inputs.bias.row_stride + key]);
    sum += bias < hiding_bias ? -infinity() : bias;
  }
  return sum;
}

/// What a weight is multiplied by.
template <typename Form>
__device__ double reference_kept(const ScoreInputs<typename Form::T>& inputs, const Sequence& of, int head, int query,
                                 int key) {
  if constexpr (Form::dropout == Dropout::none) return 1;
  const DropoutRate rate(inputs.dropout_p);
  return DropoutDraws(inputs.dropout_seed, of, head).byte_of(query, key) < rate.dropped ? 0
                                                                                        : 256.0 / (256 - rate.dropped);
}

}  // namespace kiln::attention
