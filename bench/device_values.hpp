// Tensors on the device for programs that time launches.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda/device.hpp"

namespace kiln::bench {

inline const void* address(const cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); }

template <class T>
cuda::Buffer upload(const std::vector<T>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  cuda::Buffer buffer(bytes);
  buffer.copy_from_host(values.data(), bytes);
  return buffer;
}

/// Standard normal values, cut to bf16.
inline cuda::Buffer normal_bf16(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  for (std::uint16_t& each : values)
    each = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
  return upload(values);
}

}  // namespace kiln::bench
