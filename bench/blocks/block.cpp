#include "blocks/block.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace kiln::bench {
namespace {

std::uint32_t hash(std::uint32_t value) {
  value = (value ^ (value >> 16)) * 0x7feb352dU;
  value = (value ^ (value >> 15)) * 0x846ca68bU;
  return value ^ (value >> 16);
}

/// To nearest, ties to even.
Bf16 rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<Bf16>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace

std::int64_t Batch::tokens() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }
std::int64_t Batch::longest() const { return *std::ranges::max_element(lengths); }

std::vector<Bf16> draw(std::int64_t elements, unsigned seed, double deviation, double mean) {
  const auto step = static_cast<float>(deviation * std::sqrt(3.0) / (1 << 23)), middle = static_cast<float>(mean);
  std::vector<Bf16> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = hash(static_cast<std::uint32_t>(i) + seed * 0x9e3779b9U) >> 8;
    values[i] = rounded(static_cast<float>(static_cast<int>(bits) - (1 << 23)) * step + middle);
  }
  return values;
}

std::vector<float> as_floats(const std::vector<Bf16>& values) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const Bf16 value : values) floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16));
  return floats;
}

Bf16* Tensors::drawn(std::int64_t elements, unsigned seed, double deviation, double mean) {
  return upload(draw(elements, seed, deviation, mean));
}

void Tensors::copy_bytes(void* to, const void* from, std::size_t bytes) {
  cuda::check(cuda::Driver::get().cuMemcpyHtoD_v2(reinterpret_cast<CUdeviceptr>(to), from, bytes), "cuMemcpyHtoD");
}

void Angles::add(double angle) {
  cos.push_back(static_cast<float>(std::cos(angle)));
  sin.push_back(static_cast<float>(std::sin(angle)));
}

}  // namespace kiln::bench
