// An op's [tensors] for one combination of types and choices: what binder.cpp compares tensors with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "manifest/bucketing.hpp"
#include "manifest/formula.hpp"
#include "manifest/op.hpp"

namespace kiln::manifest {

/// A size or a stride: value = axis * times + plus, a run-time value, or what a formula says.
struct BoundNumber {
  enum class Kind : std::uint8_t { constant, axis, runtime, formula };
  Kind kind = Kind::constant;
  std::uint8_t index = 0;  // of the axis or run-time value
  std::int64_t times = 1, plus = 0;
  Formula formula;  // for any kind
};

struct BoundTensor {
  bool present = true;      // what `when` says
  bool required = true;     // the address must not be null
  bool is_element = false;  // all sizes are 1 whatever the problem
  std::uint8_t rank = 0;
  std::uint32_t same_shape = 0;  // bit i: tensor i is declared with the same sizes, this one too
  std::array<BoundNumber, max_rank> sizes, strides;
};

/// A run-time value that is the stride of a tensor, or by which one is computed.
struct BoundValue {
  std::uint8_t index = 0;
  bool has_default = false, has_minimum = false, has_maximum = false;
  Formula default_value, minimum, maximum;  // over axes and run-time values before it
};

struct BindingForm {
  BindingForm(const Op& op, const DeviceFacts& facts, const Problem& problem);
  /// Whether a kernel might write this output where it reads this input: not where their shapes are equal by chance.
  [[nodiscard]] bool may_share(std::size_t output, std::size_t input) const noexcept {
    return (tensors[output].same_shape >> input & 1U) != 0;
  }

  SelectionWords selections{};
  std::vector<BoundTensor> tensors;
  std::vector<BoundValue> values;   // in the manifest's order
  std::uint32_t stride_values = 0;  // bit i: run-time value i is a stride
  std::uint32_t required = 0;       // bit i: tensor i must be given
};

/// A frame of zeros up to Op::first_static(), and what the problem's types and choices and the device are from there.
std::vector<std::int64_t> static_frame(const Op& op, const DeviceFacts& facts, const Problem& problem);

}  // namespace kiln::manifest
