// The exponentials of the part of a row that a group of lanes holds.
#pragma once

#include "common/row.cuh"
#include "softmax_state.cuh"

namespace kiln {

/// One exponential an element: they are taken from the group's own largest element, so that a row whose groups have
/// yet to agree is corrected by one factor a group (softmax_state::scale_of).
template <typename T, int Threads, int N, int Items, int Lanes = 32>
struct exponentials {
  row_share<float, Threads, N, Items> values;
  softmax_state state;

  __device__ __forceinline__ explicit exponentials(const row_share<T, Threads, N, Items>& row) {
    values = row.template map<float>([](T value) { return to_float(value); });
    state = {warp_reduce<Lanes>(values.reduce(maximum{}), maximum{}), 0.0f};
    const float origin = state.origin();
    values = values.template map<float>([origin](float value) { return fast_exp(value - origin); });
    state.sum = warp_reduce<Lanes>(values.reduce(add{}), add{});
  }

  __device__ __forceinline__ row_share<T, Threads, N, Items> scaled(const softmax_state& whole) const {
    const float scale = whole.scale_of(state);
    return values.template map<T>([scale](float value) { return from_float<T>(value * scale); });
  }
};

}  // namespace kiln
