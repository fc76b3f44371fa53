// The example's tensors, and what attention over them gives.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

/// The sizes of each rank's tensors of bf16.
struct Shape {
  std::int64_t rows, heads, dim;

  [[nodiscard]] std::size_t elements() const { return static_cast<std::size_t>(rows * heads * dim); }
  [[nodiscard]] std::size_t words() const { return elements() / 2; }  // of 32 bits
};

/// An element of q, k or v, exact in bf16: between -8 and 8 for q, so that scores have a width of 2.7, and between -1 and 1 for k and v.
inline double value_of(char tensor, std::int64_t row, std::int64_t head, std::int64_t at) {
  std::uint64_t bits =
      (static_cast<std::uint64_t>(tensor) << 56) ^ static_cast<std::uint64_t>((row * 64 + head) * 512 + at);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;  // splitmix64's finaliser
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  const auto step = static_cast<std::int64_t>((bits ^ (bits >> 31)) % 257) - 128;
  return static_cast<double>(step) / (tensor == 'q' ? 16 : 128);
}

/// [rows, heads, dim] of a rank's rows.
inline std::vector<float> values_of(char tensor, const Shape& shape, int rank) {
  std::vector<std::uint16_t> elements;
  elements.reserve(shape.elements());
  for (std::int64_t row = rank * shape.rows; row < (rank + 1) * shape.rows; ++row)
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (std::int64_t at = 0; at < shape.dim; ++at) {
        const auto value = static_cast<float>(value_of(tensor, row, head, at));
        elements.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
      }
  std::vector<float> words(shape.words());
  std::memcpy(words.data(), elements.data(), elements.size() * sizeof elements[0]);
  return words;
}

/// out of one row and head, over the keys of all ranks.
inline std::vector<double> attention_of(std::int64_t row, std::int64_t head, const Shape& shape, std::int64_t keys) {
  std::vector<double> out(static_cast<std::size_t>(shape.dim));
  double sum = 0;
  for (std::int64_t key = 0; key < keys; ++key) {
    double score = 0;
    for (std::int64_t at = 0; at < shape.dim; ++at)
      score += value_of('q', row, head, at) * value_of('k', key, head, at);
    const double weight = std::exp(score / std::sqrt(static_cast<double>(shape.dim)));
    sum += weight;
    for (std::int64_t at = 0; at < shape.dim; ++at)
      out[static_cast<std::size_t>(at)] += weight * value_of('v', key, head, at);
  }
  for (double& each : out) each /= sum;
  return out;
}

/// The largest error of some rows and heads of out, as values_of() lays it out.
inline double worst_error(const std::vector<float>& out, const Shape& shape, int rank, int world) {
  double worst = 0;
  for (const std::int64_t row : {std::int64_t{0}, shape.rows / 3, shape.rows - 1})
    for (const std::int64_t head : {std::int64_t{0}, shape.heads / 2, shape.heads - 1}) {
      const std::vector<double> wanted = attention_of(rank * shape.rows + row, head, shape, world * shape.rows);
      for (std::int64_t at = 0; at < shape.dim; ++at) {
        const auto element = static_cast<std::size_t>((row * shape.heads + head) * shape.dim + at);
        const auto word = std::bit_cast<std::uint32_t>(out[element / 2]);
        const auto got = std::bit_cast<float>(element % 2 == 0 ? word << 16 : word & 0xffff0000u);
        const double error = std::abs(got - wanted[static_cast<std::size_t>(at)]);
        if (std::isnan(error)) return error;
        worst = std::max(worst, error);
      }
    }
  return worst;
}
