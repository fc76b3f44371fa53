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

/// Returns the elements from a rank's part to the next in a buffer of all ranks' parts: the largest product of a size
/// and its stride, which is the whole of a dense tensor. Throws Error(bad_input) when the parts of `world` ranks take
/// more than 2^46 bytes.
std::int64_t part_stride(const manifest::Op& op, const manifest::Tensor& tensor, const TensorExtent& extent,
                         std::int64_t world);

}  // namespace kiln::tune
