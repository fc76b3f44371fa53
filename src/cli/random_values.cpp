#include "cli/random_values.hpp"

#include <cstring>
#include <random>

namespace kiln::cli {
namespace {

/// The bits of a floating-point type, besides the sign.
struct Layout {
  int exponent_bits, mantissa_bits;
};

Layout layout_of(manifest::DType type) noexcept {
  switch (type) {
    case manifest::DType::bf16: return {8, 7};
    case manifest::DType::f16: return {5, 10};
    case manifest::DType::f32: return {8, 23};
    case manifest::DType::f64: return {11, 52};
    case manifest::DType::e4m3: return {4, 3};
    case manifest::DType::e5m2: return {5, 2};
    default: return {0, 0};
  }
}

std::uint64_t random_real(Layout layout, std::uint64_t random) noexcept {
  const std::uint64_t bias = (std::uint64_t{1} << (layout.exponent_bits - 1)) - 1;
  const std::uint64_t sign = random >> 63;
  const std::uint64_t exponent = bias - 1 - (random >> 61 & 3);  // 2^-4 to 2^-1
  const std::uint64_t mantissa = random & ((std::uint64_t{1} << layout.mantissa_bits) - 1);
  return sign << (layout.exponent_bits + layout.mantissa_bits) | exponent << layout.mantissa_bits | mantissa;
}

}  // namespace

std::vector<std::byte> random_values(manifest::DType type, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto size = static_cast<std::size_t>(manifest::size_of(type));
  const Layout layout = layout_of(type);
  std::vector<std::byte> values(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = layout.exponent_bits > 0 ? random_real(layout, random()) : random() & 7;
    std::memcpy(&values[i * size], &bits, size);  // little-endian, as every host of a GPU is
  }
  return values;
}

}  // namespace kiln::cli
