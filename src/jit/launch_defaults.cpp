#include "jit/launch_defaults.hpp"

namespace kiln::jit {

std::optional<LaunchForm::Linear> Defaults::add(std::size_t i, const RuntimeForm& form, bool is_constant) {
  const manifest::Runtime& runtime = parts_.runtime[i];
  const std::size_t slot = parts_.layout.values[i];
  reads_.push_back(1U << i);
  settled_.push_back(is_constant);
  linear_.emplace_back();
  if (!runtime.default_integer || !form.has_value) return std::nullopt;
  for (const auto* each : {&runtime.default_integer, &runtime.minimum, &runtime.maximum})
    add_reads(*each, reads_.back());
  inside_[slot] = runtime.default_integer->range(inside_).value_or(manifest::Range{});
  const auto range = runtime.default_integer->range(anywhere_);
  if (range && !is_constant) linear_.back() = linear_of(i, form, *range);
  settled_.back() = is_constant || linear_.back();
  anywhere_[slot] = range.value_or(manifest::Range{});
  return linear_.back();
}

void Defaults::add_reads(const std::optional<manifest::Expression>& expression, std::uint32_t& reads) const {
  if (!expression) return;
  for (const int slot : expression->slots())
    if (const int value = parts_.layout.value_at(static_cast<std::size_t>(slot)); value >= 0)
      reads |= reads_[static_cast<std::size_t>(value)];
}

std::optional<LaunchForm::Linear> Defaults::linear_of(std::size_t i, const RuntimeForm& form,
                                                      const manifest::Range& range) const {
  const manifest::Formula value(parts_.runtime[i].default_integer->within(anywhere_));
  if (range.lowest < form.lowest || range.highest > form.highest) return std::nullopt;
  if (!holds_bounds(parts_.runtime[i], value, range)) return std::nullopt;
  LaunchForm::Linear linear{reads_[i], static_cast<std::uint8_t>(i), parts_.layout.values[i], 0, 0, 0};
  if (const auto number = value.constant_value()) {
    linear.plus = *number;
    return linear;
  }
  const auto multiple = value.multiple();
  if (!multiple) return std::nullopt;
  const int read = parts_.layout.value_at(multiple->slot);
  if (read >= 0 && !settled_[static_cast<std::size_t>(read)]) return std::nullopt;
  linear.from = static_cast<std::uint8_t>(multiple->slot);
  linear.times = multiple->times;
  return linear;
}

bool Defaults::holds_bounds(const manifest::Runtime& runtime, const manifest::Formula& value,
                            const manifest::Range& range) const {
  if (runtime.minimum) {
    const auto least = runtime.minimum->range(anywhere_);
    if (!least) return false;
    if (least->highest > range.lowest && !is_at_least(value, manifest::Formula(runtime.minimum->within(anywhere_))))
      return false;
  }
  if (!runtime.maximum) return true;
  const auto most = runtime.maximum->range(anywhere_);
  return most &&
         (most->lowest >= range.highest || value.same_chain(manifest::Formula(runtime.maximum->within(anywhere_))));
}

bool Defaults::is_at_least(const manifest::Formula& value, const manifest::Formula& minimum) const {
  if (value.same_chain(minimum)) return true;
  const auto one = of_axis(value.multiple()), other = of_axis(minimum.multiple());
  return one && other && one->slot == other->slot && one->times >= other->times && anywhere_[one->slot].lowest >= 0;
}

std::optional<manifest::Formula::Multiple> Defaults::of_axis(std::optional<Multiple> multiple) const {
  while (multiple && multiple->slot >= parts_.layout.axes) {
    const auto& linear = linear_[static_cast<std::size_t>(parts_.layout.value_at(multiple->slot))];
    if (!linear || linear->plus != 0) return std::nullopt;
    if (__builtin_mul_overflow(multiple->times, linear->times, &multiple->times)) return std::nullopt;
    multiple->slot = linear->from;
  }
  return multiple;
}

}  // namespace kiln::jit
