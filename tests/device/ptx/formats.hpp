// The small floats of instructions, by their names in opcodes.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "emulator/fault.hpp"
#include "twins/elements.hpp"

namespace emulator {

/// How one element of a register is read and written: `bits` wide, in the lowest bits of a word.
struct Format {
  std::string_view name;
  unsigned bits;
  float (*decode)(std::uint32_t);
  std::uint32_t (*encode)(float);
};

namespace detail {

/// From a table: products decode all that they multiply.
template <typename T>
float decode(std::uint32_t bits) {
  using Bits = decltype(T::bits);
  static const std::vector<float> values = [] {
    std::vector<float> all;
    for (std::uint32_t each = 0; each <= std::numeric_limits<Bits>::max(); ++each)
      all.push_back(static_cast<float>(fake_cuda::to_double(T{static_cast<Bits>(each)})));
    return all;
  }();
  return values[static_cast<Bits>(bits)];
}
template <typename T>
std::uint32_t encode(float value) {
  return T::from(value).bits;
}

}  // namespace detail

inline constexpr Format formats[] = {
    {"bf16", 16, detail::decode<fake_cuda::Bf16>, detail::encode<fake_cuda::Bf16>},
    {"f16", 16, detail::decode<fake_cuda::F16>, detail::encode<fake_cuda::F16>},
    {"e4m3", 8, detail::decode<fake_cuda::E4m3>, detail::encode<fake_cuda::E4m3>},
    {"e5m2", 8, detail::decode<fake_cuda::E5m2>, detail::encode<fake_cuda::E5m2>},
};

/// Throws Fault for another name.
inline const Format& format_of(std::string_view name) {
  for (const Format& format : formats) {
    if (format.name == name) return format;
  }
  fault("the emulator's PTX knows no type {}", name);
}

}  // namespace emulator
