// A tensor's sizes at one problem, as numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::tune {

struct TensorExtent {
  manifest::DType type = manifest::DType::f32;
  std::vector<std::int64_t> shape, strides;           // elements, outermost first
  std::int64_t elements = 0;                          // of memory: one past the largest offset
  [[nodiscard]] std::int64_t count() const noexcept;  // the product of the shape
};

/// Throws Error(bad_input) for a shape or stride that is negative or overflows, or a size past 2^46 bytes.
TensorExtent extent_of(const manifest::Op& op, const manifest::Tensor& tensor, std::span<const std::int64_t> frame);

}  // namespace kiln::tune
