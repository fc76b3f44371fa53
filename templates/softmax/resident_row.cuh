// Blocks that stay and walk over rows, each row held by one block: in shared memory, and what does not fit there in
// registers. A row's chunks give way to those of the next row as soon as they are written, so that reads never stop; and the
// largest logit and the sum are found as chunks arrive.
#pragma once

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "logits.cuh"

namespace kiln {

/// Where a thread's chunks of a row are: slot i holds columns first(i) and on.
template <typename T, int Threads>
struct resident_place {
  static constexpr int n = 16 / sizeof(T);
  const T* x;
  int peel, seen;  // columns from `seen` on are not read

  __device__ __forceinline__ int first(int slot) const {
    return peel + (slot * Threads + static_cast<int>(threadIdx.x)) * n;
  }
  __device__ __forceinline__ float front() const {
    return static_cast<int>(threadIdx.x) < min(peel, seen) ? to_float(x[threadIdx.x]) : -infinity();
  }
  __device__ __forceinline__ packed<T, n> load(int slot) const {
    const int at = first(slot);
    return at + n <= seen ? load_packed<n>(x + at) : load_partial<n>(x, at, seen, from_float<T>(-infinity()));
  }
  /// To shared memory, where this thread alone reads it.
  __device__ __forceinline__ void copy(uint4* to, int slot) const {
    const int at = first(slot);
    if (at >= seen) return;
    if (at + n <= seen) {
      cp_async_16(shared_address(to), x + at, true);
    } else {
      *to = load_partial<n>(x, at, seen, from_float<T>(-infinity()));
    }
  }
};

/// grid: any number of blocks, which share the rows out. Of a thread's chunks of a row, Shared are in dynamic shared
/// memory, 16 bytes each, and Held in registers. For masks that have no tensor.
template <typename T, int Threads, int Shared, int Held, Mask mask>
__global__ __launch_bounds__(Threads) void softmax_resident_row(const T* x, T* y, axis_length rows_given,
                                                                axis_length columns, long long x_row_stride,
                                                                long long y_row_stride, long long queries,
                                                                float scale) {
  static_assert(mask == Mask::none || mask == Mask::causal);
  static_assert(Shared % 4 == 0);
  using place = resident_place<T, Threads>;
  constexpr int n = place::n, warps = Threads / 32, group = Shared / 4;  // copies are waited for in four groups
  extern __shared__ uint4 chunks[];
  __shared__ softmax_state scratch[2][warps];
  wait_for_predecessor();
  const int rows = rows_given.read(), cols = columns.read();
  uint4* mine = chunks + threadIdx.x;
  const auto place_of = [&](int row) {
    const T* source = x + row * x_row_stride;
    const row_logits<T, mask> logits(source, nullptr, nullptr, row, cols, 0, 1, queries, scale);
    return place{source, peel_of<n>(source, cols), row < rows ? logits.seen : 0};
  };
  const exponential exp = row_logits<T, mask>(x, nullptr, nullptr, 0, cols, 0, 1, queries, scale).exp;

  int row = blockIdx.x;
  if (row >= rows) return;
  place here = place_of(row);
  float front = here.front();
  packed<T, n> held[Held > 0 ? Held : 1];
#pragma unroll
  for (int i = 0; i < Held; ++i) held[i] = here.load(Shared + i);
  for (int slot = 0; slot < Shared; ++slot) {
    here.copy(&mine[slot * Threads], slot);
    if (slot % group == group - 1) cp_async_commit();
  }
  launch_dependents();

  for (int buffer = 0; row < rows; row += gridDim.x, buffer ^= 1) {
    softmax_state state = softmax_state::empty();
    const auto absorb = [&](const packed<T, n>& chunk) {
      state.absorb(unpack<T, n>(chunk).template map<float>([](T value) { return to_float(value); }), exp);
    };
    const auto absorb_group = [&](int index) {
      for (int slot = index * group; slot < (index + 1) * group; ++slot) {
        if (here.first(slot) < here.seen) absorb(mine[slot * Threads]);
      }
    };
    cp_async_wait<3>();
    absorb_group(0);
    cp_async_wait<2>();
    absorb_group(1);
    cp_async_wait<1>();
    absorb_group(2);
    cp_async_wait<0>();
    absorb_group(3);
#pragma unroll
    for (int i = 0; i < Held; ++i) {
      if (here.first(Shared + i) < here.seen) absorb(held[i]);
    }
    state = merge{exp}(state, softmax_state::of(front, exp));  // what was asked for last comes last
    state = block_reduce<warps>(warp_reduce(state, merge{exp}), softmax_state::empty(), merge{exp}, scratch[buffer]);

    const place next = place_of(row + static_cast<int>(gridDim.x));
    const float origin = state.origin(), factor = state.scale_of(state, exp);
    T* target = y + row * y_row_stride;
    const bool aligned = is_aligned<16>(target + here.peel);
    if (static_cast<int>(threadIdx.x) < here.peel) target[threadIdx.x] = from_float<T>(exp(front - origin) * factor);
    const auto write = [&](const packed<T, n>& chunk, int slot) {
      const int first = here.first(slot);
      if (first >= cols) return;
      vec<T, n> values = {};  // zeros where nothing is seen
      if (first < here.seen) {
        values = unpack<T, n>(chunk).template map<T>(
            [=](T value) { return from_float<T>(exp(to_float(value) - origin) * factor); });
      }
      if (aligned && first + n <= cols) {
        store(target + first, values);
      } else {
        store_partial<n>(target, first, cols, pack(values));
      }
    };
    for (int slot = 0; slot < Shared; ++slot) {
      write(mine[slot * Threads], slot);
      next.copy(&mine[slot * Threads], slot);
      if (slot % group == group - 1) cp_async_commit();
    }
#pragma unroll
    for (int i = 0; i < Held; ++i) {
      write(held[i], Shared + i);
      held[i] = next.load(Shared + i);
    }
    here = next;
    front = here.front();
  }
}

}  // namespace kiln
