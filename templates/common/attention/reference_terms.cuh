// What is added to logits, in double, for the references of attention's ops.
#pragma once

#include "common/attention/problem.cuh"
#include "common/types.cuh"

namespace kiln::attention {

/// Of a query and a key of a sequence.
template <typename Form>
__device__ double reference_terms(const ScoreInputs<typename Form::T>& inputs, const Visible<Form::mask>& visible,
                                  const Sequence& of, int head, int query, int key) {
  double sum = 0;
  if constexpr (Form::alibi == Alibi::head) sum -= double{inputs.slopes[head]} * abs(query + visible.diagonal - key);
  if constexpr (Form::bias == Bias::tensor) {
    const double bias = to_double(inputs.bias[of.plane * inputs.bias_batch_stride + head * inputs.bias_head_stride +
                                              query * inputs.bias_row_stride + key]);
    sum += bias < hiding_bias ? -INFINITY : bias;
  }
  return sum;
}

}  // namespace kiln::attention
