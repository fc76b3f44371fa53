// [tensors] for one combination of types and choices as flat steps over a frame: what Binder::try_bind runs.
//
// The frame: [axes | run-time values | sizes of dimensions that are no plain axis | constants]. Steps name its slots.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "manifest/binding_form.hpp"

namespace kiln::manifest {

/// A product of two slots, as which a slot alone stands too, or what a formula says.
struct Expected {
  [[nodiscard]] bool evaluate(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    if (formula != nullptr) return formula->evaluate(frame, number);
    return !__builtin_mul_overflow(frame[left], frame[right], &number);
  }

  std::uint8_t left = 0, right = 0;
  const Formula* formula = nullptr;  // of the BindingForm
};

struct BindingProgram {
  static constexpr std::size_t max_slots = 192;
  static constexpr std::uint8_t none = 0xFF, later = 0xFE;

  /// One dimension. Its size is written to a slot, then compared with a slot: the same one where no dimension before
  /// shows the number, else `unused` and the one that does. Its stride is a product of two slots, or may be.
  struct alignas(8) Dimension {
    std::uint8_t written = 0, compared = 0;
    std::uint8_t left = 0, right = 0;
    std::uint8_t value = none;  // the run-time value that another stride is; `later`: the lists below say more
    std::uint8_t least = 0;     // slot of the least value
    std::uint8_t stride = 0;    // the slot of the run-time value, or `unused`
  };
  struct TensorStep {
    std::uint32_t header = 0;  // header_of() the type and rank, on device 0
    std::uint8_t tensor = 0;
    std::uint8_t rank = 0;
    std::uint8_t element_bytes = 1;
    bool is_element = false;  // also taken with rank 0
    std::array<Dimension, max_rank> dimensions;
  };
  /// A dimension that is axis * times + plus, and shows the axis unless another one does.
  struct SolvedSize {
    std::uint8_t tensor, slot, axis;
    std::int64_t times, plus;
  };
  /// A run-time value, and the dimension that it is the stride of, if any.
  struct ValueStep {
    const BoundValue* value;
    std::uint8_t slot;
    std::uint8_t tensor = none, at = 0;
  };
  struct SizeStep {
    std::uint8_t tensor, slot;
    Expected expected;
  };
  struct StrideStep {
    std::uint8_t tensor, at;
    Expected expected;
  };

  /// `statics` are the frame from Op::first_static() on, behind any numbers. `form` must outlive this object.
  BindingProgram(const Op& op, std::span<const std::int64_t> statics, const BindingForm& form);

  bool is_usable = false;                      // not where there are too many slots
  bool has_rest = false;                       // more than `steps` say
  std::uint8_t axes = 0, tensors = 0;          // how many the op has
  std::uint8_t zero = 0, one = 0;              // slots of these constants, the first ones
  std::uint8_t unused = 0;                     // a slot that nothing reads
  std::uint32_t all_axes = 0, shown_axes = 0;  // bit i: axis i; shown by required tensors, as it is
  std::uint32_t present = 0, required = 0;     // bit i: tensor i
  std::uint32_t shown_values = 0;              // bit i: run-time value i is the stride of a tensor
  std::uint32_t unusual_selections = 0;        // neither shown by a required tensor nor a default
  std::vector<std::int64_t> constants;
  // In the order in which they run.
  std::vector<TensorStep> steps;  // of required tensors first; from the innermost dimension on
  std::vector<SolvedSize> solved;
  std::vector<std::uint8_t> outputs;  // places in `steps`
  std::vector<ValueStep> values;
  std::vector<SizeStep> sizes;
  std::vector<StrideStep> strides;
};

/// All that binding knows of one combination.
struct Combination {
  Combination(const Op& op, const DeviceFacts& facts, const Problem& problem)
      : form(op, facts, problem), program(op, static_frame(op, facts, problem), form) {}

  BindingForm form;
  BindingProgram program;
  Combination* next = nullptr;
};

/// Type, rank and device in one number.
constexpr std::uint32_t header_of(DType type, std::uint8_t rank, std::int16_t device) noexcept {
  return static_cast<std::uint32_t>(type) | static_cast<std::uint32_t>(rank) << 8 |
         static_cast<std::uint32_t>(static_cast<std::uint16_t>(device)) << 16;
}

}  // namespace kiln::manifest
