// Which defaults of run-time values a launch computes by one multiplication, without a check.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "jit/launch_form.hpp"

namespace kiln::jit {

/// What run-time values are where a launch gives none of them, in their order.
class Defaults {
 public:
  explicit Defaults(const LaunchFormParts& parts)
      : parts_(parts), anywhere_(parts.op.begin(), parts.op.end()), inside_(parts.bucket.begin(), parts.bucket.end()) {}

  /// Adds the next value. `is_constant`: LaunchForm::defaults has its default. Returns the default's linear form.
  std::optional<LaunchForm::Linear> add(std::size_t i, const RuntimeForm& form, bool is_constant);
  /// The ranges of all slots, at sizes inside the bucket.
  [[nodiscard]] const std::vector<manifest::Range>& inside() const noexcept { return inside_; }

 private:
  using Multiple = manifest::Formula::Multiple;

  void add_reads(const std::optional<manifest::Expression>& expression, std::uint32_t& reads) const;
  [[nodiscard]] std::optional<LaunchForm::Linear> linear_of(std::size_t i, const RuntimeForm& form,
                                                            const manifest::Range& range) const;
  /// Whether the default, of this range, is within its bounds where the launch gives nothing that they read.
  [[nodiscard]] bool holds_bounds(const manifest::Runtime& runtime, const manifest::Formula& value,
                                  const manifest::Range& range) const;
  [[nodiscard]] bool is_at_least(const manifest::Formula& value, const manifest::Formula& minimum) const;
  /// The same value as a multiple of an axis, by the defaults of the values that it reads.
  [[nodiscard]] std::optional<Multiple> of_axis(std::optional<Multiple> multiple) const;

  const LaunchFormParts& parts_;
  std::vector<manifest::Range> anywhere_, inside_;  // of each slot: at all sizes with these exact ones; in the bucket
  std::vector<std::uint32_t> reads_;                // of each value: itself, and all that its expressions read
  std::vector<bool> settled_;                       // of each value: its default is constant or linear
  std::vector<std::optional<LaunchForm::Linear>> linear_;
};

}  // namespace kiln::jit
