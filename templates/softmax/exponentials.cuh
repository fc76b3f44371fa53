// The exponentials of the part of a row that a group of lanes holds.
#pragma once

#include "common/row.cuh"
#include "softmax_state.cuh"

namespace kiln {

/// One exponential an element. It is taken from the group's own largest logit. So a row of groups that have yet to
/// agree is corrected by one factor a group (softmax_state::scale_of).
template <int Threads, int N, int Items, int Lanes = 32>
struct exponentials {
  using share = row_share<float, Threads, N, Items>;
  share values;
  softmax_state state;
  exponential exp;

  __device__ __forceinline__ exponentials(const share& logits, exponential of) : exp(of) {
    state = {warp_reduce<Lanes>(logits.reduce(maximum{}), maximum{}), 0.0f};
    const float origin = state.origin();
    values = logits.template map<float>([=](float logit) { return of(logit - origin); });
    state.sum = warp_reduce<Lanes>(values.reduce(add{}), add{});
  }

  template <typename T>
  __device__ __forceinline__ row_share<T, Threads, N, Items> scaled(const softmax_state& whole) const {
    const float scale = whole.scale_of(state, exp);
    return values.template map<T>([scale](float value) { return from_float<T>(value * scale); });
  }
};

}  // namespace kiln
