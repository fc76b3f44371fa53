// What is added to logits, in double, for the references of attention's ops.
#pragma once

#include "common/attention/problem.cuh"

namespace kiln::attention {

/// Of a query and a key of a sequence.
template <typename Form>
__device__ double reference_terms(const ScoreInputs& inputs, const Visible<Form::mask>& visible, int head, int query,
                                  int key) {
  double sum = 0;
  if constexpr (Form::alibi == Alibi::head) sum -= double{inputs.slopes[head]} * abs(query + visible.diagonal - key);
  return sum;
}

}  // namespace kiln::attention
