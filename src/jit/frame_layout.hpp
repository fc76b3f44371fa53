// Where the call frame of a plan has the op's run-time values and the addresses of its tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

/// Slots of CallFrame. The axes come first, in their order. A view lies in the frame as its kernel takes it, the
/// tensor's address and then its strides, and so does a pack. So a launch passes one pointer, and copies nothing.
struct FrameLayout {
  static constexpr std::size_t most_slots = max_axes + max_runtime + max_tensors;
  static constexpr std::size_t few_axes = 8;  // as most ops have

  std::size_t axes = 0;
  std::array<std::uint8_t, max_runtime> values{};   // of each run-time value
  std::array<std::uint8_t, max_tensors> tensors{};  // of each tensor's address
  std::size_t slots = 0;                            // that are in use, with those left out between them
  std::array<bool, most_slots> zeros{};             // words of a view or pack that are always 0
  bool as_declared = false;  // axes and run-time values are numbered as the op's expressions number them

  /// Whether nothing is ever written to the slot, which is 0.
  [[nodiscard]] bool is_zero(std::int64_t slot) const noexcept;
  /// The run-time value in a slot, or -1.
  [[nodiscard]] int value_at(std::size_t slot) const noexcept;
  /// The slots of the frame for each of the op's: of axes and run-time values.
  [[nodiscard]] std::vector<int> of_declared(std::size_t runtime) const;
};

/// The frame of a library's call, whose expressions are not renumbered.
FrameLayout declared_layout(std::size_t axes, std::size_t runtime);

/// `frame`: manifest::Variant::frame, by which some views are zeros. Where two views or packs have a word in common,
/// the first has the place, and the words of the other are copied at each launch. So are those of a pack with axes
/// beside other members, with workspaces or with values of expressions, except the constant 0.
FrameLayout layout_of(const manifest::Op& op, std::span<const manifest::Pass> passes,
                      std::span<const std::int64_t> frame);

}  // namespace kiln::jit
