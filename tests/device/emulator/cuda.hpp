// What CUDA C++ has built in, for kernels that translate has made C++ of.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "emulator/machine.hpp"
#include "emulator/vectors.hpp"
#include "ptx/call.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __CUDA_ARCH__ 900

/// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float value) { return std::exp(value); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }

template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
void __stwb(T* to, T value) {
  *to = value;
}

inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1; }
/// Byte i of the result is the one of low's, then high's bytes that nibble i of the selector names.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }

inline std::size_t __cvta_generic_to_shared(const void* pointer) {
  return emulator::current_block().shared.address_of(pointer);
}

// Threads change places at waits and pauses only, so that what follows is atomic.

template <typename T>
T atomicAdd(T* to, T value) {
  emulator::maybe_pause();
  const T before = *to;
  *to = before + value;
  return before;
}
inline unsigned atomicInc(unsigned* to, unsigned last) {
  emulator::maybe_pause();
  const unsigned before = *to;
  *to = before >= last ? 0 : before + 1;
  return before;
}
template <typename T>
T atomicMax(T* to, T value) {
  emulator::maybe_pause();
  const T before = *to;
  *to = std::max(before, value);
  return before;
}
template <typename T>
T atomicExch(T* to, T value) {
  emulator::maybe_pause();
  return std::exchange(*to, value);
}
inline void __threadfence() {}
inline void __threadfence_system() {}

inline void __syncthreads() { EMULATED_PTX("bar.sync 0;"); }
inline int __syncthreads_or(int vote) {
  std::array<bool, 3>& votes = emulator::current_block().votes;
  const unsigned turn = emulator::current().votes++ % 3;
  if (vote != 0) votes[turn] = true;
  __syncthreads();
  votes[(turn + 2) % 3] = false;  // the turn before, which all have read by now, and none takes before the next barrier
  return votes[turn] ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  char nothing{};
  emulator::meet_in_warp("__syncwarp", mask, nothing, [](auto&) {});
}

namespace emulator {

/// The value of the lane that source(lane) names, or the thread's own where that is not of its part of `width` lanes.
template <typename T, typename Source>
T shuffled(unsigned mask, T value, int width, Source source) {
  struct Lane {
    T value, result;
    int from;
  } mine{value, value, 0};
  const int lane = static_cast<int>(current().lane());
  mine.from = source(lane);
  if (mine.from / width != lane / width || mine.from < 0) mine.from = lane;
  meet_in_warp("shfl.sync", mask, mine, [](const auto& lanes) {
    for (Lane* each : lanes) {
      if (each == nullptr) continue;
      const Lane* const from = lanes[static_cast<std::size_t>(each->from)];
      if (from == nullptr) fault("shfl.sync reads lane {}, which takes no part", each->from);
      each->result = from->value;
    }
  });
  return mine.result;
}

template <typename T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(current_block().shared.dynamic());
}
template <typename T>
T& static_shared(const void* key) {
  return *reinterpret_cast<T*>(current_block().shared.variable(key, sizeof(T)));
}

}  // namespace emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  return emulator::shuffled(mask, value, width, [=](int lane) { return lane / width * width + from % width; });
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
  return emulator::shuffled(mask, value, width, [=](int lane) { return lane ^ with; });
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int by, int width = 32) {
  return emulator::shuffled(mask, value, width, [=](int lane) { return lane - by; });
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int by, int width = 32) {
  return emulator::shuffled(mask, value, width, [=](int lane) { return lane + by; });
}
inline int __reduce_max_sync(unsigned mask, int value) {
  emulator::meet_in_warp("redux.sync", mask, value, [](const auto& lanes) {
    int most = std::numeric_limits<int>::min();
    for (const int* each : lanes) most = each == nullptr ? most : std::max(most, *each);
    for (int* each : lanes) {
      if (each != nullptr) *each = most;
    }
  });
  return value;
}
inline int __reduce_add_sync(unsigned mask, int value) {
  emulator::meet_in_warp("redux.sync", mask, value, [](const auto& lanes) {
    int sum = 0;
    for (const int* each : lanes) sum += each == nullptr ? 0 : *each;
    for (int* each : lanes) {
      if (each != nullptr) *each = sum;
    }
  });
  return value;
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  struct Lane {
    bool vote;
    unsigned result;
  } mine{vote, 0};
  emulator::meet_in_warp("vote.sync", mask, mine, [](const auto& lanes) {
    unsigned votes = 0;
    for (unsigned i = 0; i < lanes.size(); ++i) votes |= lanes[i] != nullptr && lanes[i]->vote ? 1u << i : 0;
    for (Lane* each : lanes) {
      if (each != nullptr) each->result = votes;
    }
  });
  return mine.result;
}
