// What is added to logits, and what dropout does, in double, for the references of attention's ops.
#pragma once

#include "common/attention/dropout.cuh"
#include "common/types.cuh"

namespace kiln::attention {

/// Returns what is added to the logit of a query and a key of a sequence.
template <typename Form>
__device__ double reference_terms(const ScoreInputs<typename Form::T>& inputs, const Visible<Form::mask>& visible,
                                  const Sequence& of, int head, int query, int key) {
  double sum = 0;
  if constexpr (Form::alibi == Alibi::head) sum -= double{inputs.slopes[head]} * abs(query + visible.diagonal - key);
  if constexpr (Form::bias == Bias::tensor) {
    const double bias = to_double(inputs.bias[of.plane * inputs.bias_batch_stride + head * inputs.bias_head_stride +
                                              query * inputs.bias_row_stride + key]);
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
