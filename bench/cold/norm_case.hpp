// A few rows to normalise, and what must come of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/error.hpp"

namespace kiln::bench {

constexpr std::int64_t norm_rows = 8;
constexpr std::int64_t norm_cols = 4096;
constexpr double norm_epsilon = 1e-6;

/// bf16 in and out. Every input is a small multiple of 1/16, which bf16 holds exactly.
class NormCase {
 public:
  NormCase() : host_x_(norm_rows * norm_cols), host_weight_(norm_cols), host_y_(host_x_.size()) {
    for (std::size_t i = 0; i < host_x_.size(); ++i) host_x_[i] = to_bf16(x_at(i));
    for (std::size_t i = 0; i < host_weight_.size(); ++i) host_weight_[i] = to_bf16(weight_at(i));
    x_.copy_from_host(host_x_.data(), x_.bytes());
    weight_.copy_from_host(host_weight_.data(), weight_.bytes());
    y_.copy_from_host(host_y_.data(), y_.bytes());
  }

  [[nodiscard]] const void* x() const { return reinterpret_cast<const void*>(x_.pointer()); }
  [[nodiscard]] const void* weight() const { return reinterpret_cast<const void*>(weight_.pointer()); }
  [[nodiscard]] const void* y() const { return reinterpret_cast<const void*>(y_.pointer()); }

  void fetch() { y_.copy_to_host(host_y_.data(), y_.bytes()); }
  /// What fetch() brought against the same in double. Throws Error(wrong_result).
  void check() const {
    for (std::int64_t row = 0; row < norm_rows; ++row) {
      double squares = 0;
      for (std::int64_t col = 0; col < norm_cols; ++col) squares += std::pow(x_at(index(row, col)), 2);
      const double scale = 1 / std::sqrt(squares / norm_cols + norm_epsilon);
      for (std::int64_t col = 0; col < norm_cols; ++col) {
        const double wanted = x_at(index(row, col)) * scale * weight_at(static_cast<std::size_t>(col));
        const double got = from_bf16(host_y_[index(row, col)]);
        if (!(std::abs(got - wanted) <= 8e-3 * std::abs(wanted) + 1e-3))
          throw Error(ErrorKind::wrong_result, "element " + std::to_string(index(row, col)) + " is " +
                                                   std::to_string(got) + ", expected " + std::to_string(wanted));
      }
    }
  }

 private:
  static std::size_t index(std::int64_t row, std::int64_t col) {
    return static_cast<std::size_t>(row * norm_cols + col);
  }
  static double x_at(std::size_t i) { return (static_cast<double>(i * 37 % 97) - 48) / 16; }
  static double weight_at(std::size_t i) { return 1 + static_cast<double>(i % 7) / 8; }
  static std::uint16_t to_bf16(double exact) {
    const auto value = static_cast<float>(exact);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
  }
  static double from_bf16(std::uint16_t half) {
    const std::uint32_t bits = std::uint32_t{half} << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  std::vector<std::uint16_t> host_x_, host_weight_, host_y_;
  cuda::Buffer x_{norm_rows * norm_cols * 2}, weight_{norm_cols * 2}, y_{norm_rows * norm_cols * 2};
};

}  // namespace kiln::bench
