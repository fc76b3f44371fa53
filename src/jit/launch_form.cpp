#include "jit/launch_form.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "jit/launch_defaults.hpp"

namespace kiln::jit {
namespace {

/// Whether every value of an integer's default lies within the type's range and the bounds, if slots lie in these
/// ranges.
bool default_holds(const RuntimeForm& form, std::span<const manifest::Range> ranges) {
  const auto value = form.value.constant_value();
  if (form.has_maximum && !form.value.same_chain(form.maximum)) {
    const auto most = form.maximum.constant_value();
    if (!value || !most || *value > *most) return false;
  }
  const bool fits = form.lowest == std::numeric_limits<std::int64_t>::min() &&
                    form.highest == std::numeric_limits<std::int64_t>::max();
  if (!value && fits && form.has_minimum && !form.value.same_chain(form.minimum)) {
    const auto least = form.minimum.constant_value();
    return least && form.value.is_at_least(*least, ranges);
  }
  if (!value) return fits;
  const auto minimum = form.has_minimum ? form.minimum.constant_value() : form.lowest;
  return minimum && *value >= *minimum && *value >= form.lowest && *value <= form.highest;
}

LaunchForm::Constraints open_constraints(std::span<const manifest::Expression> constraints,
                                         std::span<const manifest::Range> ranges) {
  LaunchForm::Constraints open;
  for (const manifest::Expression& each : constraints)
    for (manifest::Formula& part : manifest::Formula::conjuncts(each.within(ranges))) {
      const auto number = part.constant_value();
      if (number && *number != 0) continue;
      const auto divisible = part.divisible();
      if (divisible && divisible->times <= most_alignment)
        open.masked.push_back({static_cast<std::uint32_t>(divisible->times - 1), divisible->slot});
      else
        open.formulas.push_back(std::move(part));
    }
  return open;
}

/// Whether a constraint or a default reads this slot.
bool is_used(const LaunchFormParts& parts, int slot) {
  return std::any_of(parts.constraints.begin(), parts.constraints.end(),
                     [&](const manifest::Expression& each) { return each.uses(slot); }) ||
         std::any_of(parts.runtime.begin(), parts.runtime.end(), [&](const manifest::Runtime& each) {
           return each.default_integer && each.default_integer->uses(slot);
         });
}

void insert_slots(const manifest::Expression& expression, std::set<int>& slots) {
  for (const int slot : expression.slots()) slots.insert(slot);
}

/// Returns the slots that a view or the descriptor of a TMA argument depends on.
std::vector<int> slots_of(const LoadedArgument& argument, std::span<const manifest::Range> ranges) {
  std::set<int> slots;
  for (const auto* list :
       {&argument.shape, &argument.strides, &argument.box, &argument.tensor_shape, &argument.tensor_strides})
    for (const manifest::Expression& each : *list) insert_slots(each.within(ranges), slots);
  return {slots.begin(), slots.end()};
}

/// Returns the slots that launches read, those of defaults among them where the value is read that has the default.
std::set<int> slots_read(const LaunchFormParts& parts) {
  std::set<int> slots;
  for (const LoadedPass& pass : parts.passes) {
    for (const manifest::Expression& size : pass.grid) insert_slots(size, slots);
    for (const LoadedArgument& argument : pass.arguments) {
      if (argument.kind == manifest::ArgumentKind::runtime) slots.insert(argument.index);
      insert_slots(argument.value, slots);
      if (!argument.absent)
        for (const int slot : slots_of(argument, parts.op)) slots.insert(slot);
    }
  }
  for (const manifest::Expression& each : parts.constraints) insert_slots(each, slots);
  for (const manifest::Runtime& each : parts.runtime)
    for (const auto* bound : {&each.minimum, &each.maximum})
      if (*bound) insert_slots(**bound, slots);
  for (std::size_t i = parts.runtime.size(); i-- > 0;) {  // a default reads earlier values alone
    const auto& value = parts.runtime[i].default_integer;
    if (value && slots.contains(static_cast<int>(parts.axes + i))) insert_slots(*value, slots);
  }
  return slots;
}

class PassMaker {
 public:
  /// `first_value`: the index in CallFrame::values of the pass's first value.
  PassMaker(const LoadedPass& pass, const LaunchFormParts& parts, std::size_t first_value)
      : ranges_(parts.op), has_workspace_(parts.has_workspace), values_(first_value) {
    form_.first_value = static_cast<std::uint8_t>(first_value);
    form_.config = pass.config;
    form_.config.attrs = const_cast<CUlaunchAttribute*>(pass.attributes.data());
    form_.config.numAttrs = pass.attribute_count;
    form_.function = pass.function;
    form_.kernel = &pass.kernel;
    add_size(pass.grid[0], offsetof(CUlaunchConfig, gridDimX), most_grid_x, form_.config.gridDimX);
    add_size(pass.grid[1], offsetof(CUlaunchConfig, gridDimY), most_grid_yz, form_.config.gridDimY);
    add_size(pass.grid[2], offsetof(CUlaunchConfig, gridDimZ), most_grid_yz, form_.config.gridDimZ);
    for (std::size_t i = 0; i < pass.arguments.size(); ++i)
      form_.offsets[i] = static_cast<std::uint16_t>(place(i, pass.arguments[i]));
    while (form_.copied.size() % PassForm::copies != 0) form_.copied.emplace_back(form_.copied.back());
    form_.arguments = pass.arguments.size();
    form_.past_values = static_cast<std::uint8_t>(values_);
    form_.has_more = !form_.computed.empty() || !form_.copied.empty() || maps() > 0;
    form_.has_workspace_maps = !form_.workspace_maps.empty();
    if (maps() > 0) form_.made_maps = std::make_unique<TensorMapCache>(maps());
  }
  PassForm take() { return std::move(form_); }

 private:
  void add_size(const manifest::Expression& blocks, std::size_t offset, std::int64_t most, unsigned& dimension) {
    const PassForm::GridSize size{static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(most),
                                  manifest::Formula(blocks.within(ranges_))};
    const auto value = size.blocks.constant_value();
    if (value && *value >= 1 && *value <= most)
      dimension = static_cast<unsigned>(*value);
    else
      form_.grid.push_back(size);
  }

  /// Appends a value and returns its offset in CallFrame, in bytes.
  std::size_t value(std::int64_t constant) {
    form_.constants[values_] = constant;
    return offsetof(CallFrame, values) + values_++ * sizeof constant;
  }

  std::size_t computed(PassForm::Computed how) {
    how.to = static_cast<std::uint8_t>(values_);
    form_.computed.push_back(std::move(how));
    return value(0);
  }

  [[nodiscard]] std::size_t maps() const { return form_.maps.size() + form_.workspace_maps.size(); }

  /// The parameter lies outside CallFrame, so that its offset there is unused.
  std::size_t fixed(std::size_t parameter, const void* address) {
    form_.fixed.push_back({static_cast<std::uint8_t>(parameter), address});
    return 0;
  }

  /// Returns the offset of the argument in CallFrame, in bytes.
  std::size_t place(std::size_t parameter, const LoadedArgument& argument) {
    const auto index = static_cast<std::uint16_t>(argument.index);
    switch (argument.kind) {
      case manifest::ArgumentKind::tensor: return offset_of_tensor(argument);
      case manifest::ArgumentKind::view:
      case manifest::ArgumentKind::workspace_view: return place_view(argument);
      case manifest::ArgumentKind::axis:
      case manifest::ArgumentKind::runtime: return offset_of_slot(index);
      case manifest::ArgumentKind::workspace: return place_address(false, argument.offset);
      case manifest::ArgumentKind::zeroed_workspace: return place_address(true, argument.offset);
      case manifest::ArgumentKind::expression: {
        const manifest::Formula formula(argument.value.within(ranges_));
        const auto number = formula.constant_value();
        if (number && *number >= argument.limits.lowest && *number <= argument.limits.highest) return value(*number);
        if (const auto slot = formula.multiple(); slot && slot->times == 1 && fits(*slot, argument.limits))
          return offset_of_slot(slot->slot);  // the low half of a number that has 32 bits
        return computed({argument.kind, 0, 0, formula, argument.limits});
      }
      case manifest::ArgumentKind::length:
        form_.lengths = static_cast<std::uint16_t>(form_.lengths | 1U << index);
        return offsetof(CallFrame, lengths) + index * sizeof(AxisLength);
      case manifest::ArgumentKind::report:
        form_.lengths = static_cast<std::uint16_t>(form_.lengths | 1U << index);
        return offsetof(CallFrame, lengths) + index * sizeof(AxisLength) + offsetof(AxisLength, report);
      case manifest::ArgumentKind::peers:
      case manifest::ArgumentKind::team: return fixed(parameter, argument.fixed);
      case manifest::ArgumentKind::tensor_map:
      case manifest::ArgumentKind::workspace_map: break;
    }
    return argument.absent ? fixed(parameter, &no_tensor_map) : place_map(parameter, argument);
  }

  static_assert(std::endian::native == std::endian::little);
  static std::size_t offset_of_slot(std::size_t slot) {
    return offsetof(CallFrame, slots) + slot * sizeof(std::int64_t);
  }
  [[nodiscard]] bool fits(const manifest::Formula::Multiple& value, const manifest::Range& limits) const {
    const manifest::Range& range = ranges_[value.slot];
    return limits.contains(range.lowest) && limits.contains(range.highest);
  }

  static std::size_t offset_of_tensor(const LoadedArgument& argument) {
    return offsetof(CallFrame, tensors) + static_cast<std::size_t>(argument.index) * sizeof(const void*);
  }

  /// Appends a value that each launch copies from this offset in CallFrame.
  std::size_t copied(std::size_t from) {
    const std::size_t to = value(0);
    form_.copied.push_back({static_cast<std::uint16_t>(from), static_cast<std::uint16_t>(to)});
    return to;
  }

  std::size_t place_view(const LoadedArgument& argument) {
    if (argument.absent) {
      const std::size_t begin = value(0);
      for (std::size_t i = 0; i < argument.strides.size(); ++i) value(0);
      return begin;
    }
    const std::size_t begin = argument.kind == manifest::ArgumentKind::view
                                  ? copied(offset_of_tensor(argument))
                                  : place_address(argument.zeroed, argument.offset);
    for (const manifest::Expression& each : argument.strides) {
      const manifest::Formula formula(each.within(ranges_));
      const auto slot = formula.multiple();
      if (const auto number = formula.constant_value())
        value(*number);
      else if (slot && slot->times == 1)
        copied(offset_of_slot(slot->slot));
      else
        computed({manifest::ArgumentKind::expression, 0, 0, formula, {}});
    }
    return begin;
  }

  std::size_t place_map(std::size_t parameter, const LoadedArgument& argument) {
    const std::size_t map = maps();
    form_.map_arguments[map] = &argument;
    if (argument.kind == manifest::ArgumentKind::tensor_map) {
      form_.maps.push_back(map_form(parameter, argument, static_cast<std::uint8_t>(argument.index)));
    } else {
      const auto address = static_cast<std::uint8_t>(values_);
      if (argument.address != 0)
        value(std::bit_cast<std::int64_t>(argument.address));
      else
        place_address(argument.zeroed, argument.offset);
      form_.workspace_maps.push_back(map_form(parameter, argument, address));
    }
    return offsetof(CallFrame, maps) + map * sizeof(CUtensorMap);
  }

  std::size_t place_address(bool zeroed, std::int64_t offset) {
    const auto block = zeroed ? manifest::ArgumentKind::zeroed_workspace : manifest::ArgumentKind::workspace;
    return has_workspace_ ? computed({block, 0, offset, {}, {}}) : value(0);
  }

  /// `from`: where a launch finds the address.
  TensorMapForm map_form(std::size_t parameter, const LoadedArgument& argument, std::uint8_t from) const {
    TensorMapForm form;
    form.parameter = static_cast<std::uint8_t>(parameter);
    form.tensor = from;
    form.index = static_cast<std::uint8_t>(maps());
    const std::vector<int> slots = slots_of(argument, ranges_);
    if (slots.size() > TensorMapForm::most_slots) return form;
    using Key = TensorMapForm::Key;
    for (const Key key : {Key::widest, Key::wide, Key::narrow})
      if (slots.size() <= static_cast<std::size_t>(key)) form.key = key;
    // Unused key slots repeat a slot of the key, or name a slot that the plan fixes, so that they never cause a miss.
    const auto fixed =
        std::find_if(ranges_.begin(), ranges_.end(), [](const manifest::Range& each) { return each.single(); });
    const auto settled = fixed == ranges_.end() ? 0 : fixed - ranges_.begin();
    form.slots.fill(static_cast<std::uint8_t>(slots.empty() ? settled : slots[0]));
    std::copy(slots.begin(), slots.end(), form.slots.begin());
    return form;
  }

  std::span<const manifest::Range> ranges_;
  bool has_workspace_;
  std::size_t values_;  // used elements of CallFrame::values
  PassForm form_;
};

LaunchForm::Bucketed bucketed(std::size_t axis, const manifest::Range& range) {
  const auto lowest = static_cast<std::uint64_t>(range.lowest);
  return {lowest, static_cast<std::uint64_t>(range.highest) - lowest, axis};
}

std::size_t values_of(const LoadedArgument& argument) {
  switch (argument.kind) {
    case manifest::ArgumentKind::workspace:
    case manifest::ArgumentKind::zeroed_workspace:
    case manifest::ArgumentKind::expression:
    case manifest::ArgumentKind::workspace_map: return 1;
    case manifest::ArgumentKind::view:
    case manifest::ArgumentKind::workspace_view: return 1 + argument.strides.size();
    default: return 0;
  }
}

/// Places each pass's values behind those of the pass before, so that launches need not write constants again. Where
/// CallFrame::values is too small, all passes share its beginning.
std::vector<PassForm> pass_forms(const LaunchFormParts& parts) {
  std::size_t values = 0;
  for (const LoadedPass& pass : parts.passes)
    for (const LoadedArgument& each : pass.arguments) values += values_of(each);
  const bool apart = values <= max_values;
  std::vector<PassForm> forms;
  for (const LoadedPass& pass : parts.passes) {
    const std::size_t first = apart && !forms.empty() ? forms.back().past_values : 0;
    PassForm& form = forms.emplace_back(PassMaker(pass, parts, first).take());
    if (apart) continue;
    form.constant_pieces = static_cast<std::uint8_t>((form.past_values + PassForm::piece - 1) / PassForm::piece);
    form.has_more = form.has_more || form.constant_pieces > 0;
  }
  return forms;
}

/// Notes that every given value that is not too small is within its limits, where that is so.
void set_least(LaunchForm& form, std::size_t i, std::optional<std::int64_t> minimum) {
  const RuntimeForm& each = form.runtime[i];
  const bool has_no_most = each.highest == std::numeric_limits<std::int64_t>::max();
  form.least[i] = std::numeric_limits<std::int64_t>::min();
  if (!each.given_holds && (!has_no_most || each.has_maximum || (each.has_minimum && !minimum))) return;
  form.any_given |= 1U << i;
  if (!each.given_holds) form.least[i] = std::max(each.lowest, minimum.value_or(each.lowest));
}

}  // namespace

manifest::Range range_of(manifest::RuntimeType type) noexcept {
  switch (type) {
    case manifest::RuntimeType::i32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case manifest::RuntimeType::u32: return {0, std::numeric_limits<std::uint32_t>::max()};
    case manifest::RuntimeType::u64: return {0, std::numeric_limits<std::int64_t>::max()};
    default: return {};
  }
}

std::int64_t bits_of(manifest::RuntimeType type, double value) noexcept {
  if (type == manifest::RuntimeType::f32) return std::bit_cast<std::int32_t>(static_cast<float>(value));
  return std::bit_cast<std::int64_t>(value);
}

manifest::Range bits_between(manifest::RuntimeType type, const manifest::RealBound& lower,
                             const manifest::RealBound* upper) noexcept {
  const double most = type == manifest::RuntimeType::f32 ? static_cast<double>(std::numeric_limits<float>::max())
                                                         : std::numeric_limits<double>::max();
  const manifest::RealBound last = upper != nullptr ? *upper : manifest::RealBound{most, true};
  return {bits_of(type, lower.value) + (lower.reached ? 0 : 1), bits_of(type, last.value) - (last.reached ? 0 : 1)};
}

RuntimeForm form_of(const manifest::Runtime& runtime, std::span<const manifest::Range> ranges,
                    const manifest::Range& settled, std::span<const manifest::Range> checked) {
  RuntimeForm form;
  if (!runtime.is_integer()) {
    form.given_holds = form.value_holds = true;
    const auto value = runtime.default_real ? runtime.default_real->evaluate({}) : std::nullopt;
    form.has_value = value.has_value();
    if (value) form.value = manifest::Formula(manifest::Expression::constant(bits_of(runtime.type, *value)));
    if (!runtime.lower) return form;
    const manifest::Range taken = bits_between(runtime.type, *runtime.lower, runtime.upper ? &*runtime.upper : nullptr);
    form.lowest = taken.lowest;
    form.highest = taken.highest;
    form.given_holds = false;
    form.value_holds = value && taken.contains(bits_of(runtime.type, *value));
    return form;
  }
  const manifest::Range limits = settled.single() ? settled : range_of(runtime.type);
  form.lowest = limits.lowest;
  form.highest = limits.highest;
  form.has_minimum = runtime.minimum.has_value();
  if (form.has_minimum) form.minimum = manifest::Formula(runtime.minimum->within(ranges));
  form.has_maximum = runtime.maximum.has_value();
  if (form.has_maximum) form.maximum = manifest::Formula(runtime.maximum->within(ranges));
  form.has_value = runtime.default_integer.has_value();
  if (form.has_value) form.value = manifest::Formula(runtime.default_integer->within(ranges));
  form.value_holds = form.has_value && default_holds(form, checked);
  form.given_holds = !form.has_minimum && !form.has_maximum && limits == manifest::Range{};
  return form;
}

LaunchForm make_launch_form(const LaunchFormParts& parts) {
  LaunchForm form;
  form.axes = static_cast<std::uint8_t>(parts.axes);
  for (std::size_t i = 0; i < parts.axes; ++i)
    if (!parts.op[i].single()) form.bucket.push_back(bucketed(i, parts.bucket[i]));
  const std::set<int> read = slots_read(parts);
  Defaults defaults(parts);
  std::vector<manifest::Range> checked(parts.op.begin(), parts.op.end());
  for (std::size_t i = 0; i < parts.runtime.size(); ++i) {
    RuntimeForm& each =
        form.runtime.emplace_back(form_of(parts.runtime[i], parts.op, parts.op[parts.axes + i], checked));
    const auto least = each.has_minimum ? each.minimum.constant_value() : std::nullopt;
    if (least) checked[parts.axes + i].lowest = std::max(checked[parts.axes + i].lowest, *least);
    const auto most = each.has_maximum ? each.maximum.constant_value() : std::nullopt;
    if (most) checked[parts.axes + i].highest = std::min(checked[parts.axes + i].highest, *most);
    const auto constant = each.has_value && each.value_holds ? each.value.constant_value() : std::nullopt;
    each.is_read = parts.reads_all || !each.has_value || read.contains(static_cast<int>(parts.axes + i));
    form.declared |= 1U << i;
    set_least(form, i, least);
    form.defaults[i] = constant.value_or(0);
    if (!constant && each.is_read) form.open_defaults |= 1U << i;
    if (const auto linear = defaults.add(i, each, constant.has_value()); linear && each.is_read)
      form.linear.push_back(*linear);
  }
  form.constraints = open_constraints(parts.constraints, parts.bucket);
  form.constraints_elsewhere = open_constraints(parts.constraints, parts.op);
  form.has_constraints = !form.constraints_elsewhere.empty();
  form.constraints_at_defaults = open_constraints(parts.constraints, defaults.inside());
  form.holds_inside = form.constraints_at_defaults.empty();
  for (std::size_t i = 0; i < parts.runtime.size(); ++i)
    if (is_used(parts, static_cast<int>(parts.axes + i))) form.constrained |= 1U << i;
  form.passes = pass_forms(parts);
  const auto takes_past = [&](int tensors) {
    return std::ranges::any_of(parts.passes, [&](const LoadedPass& pass) {
      return std::ranges::any_of(pass.arguments, [&](const LoadedArgument& argument) {
        const bool copied =
            argument.kind == manifest::ArgumentKind::tensor || argument.kind == manifest::ArgumentKind::view;
        return copied && argument.index >= tensors;
      });
    });
  };
  form.many_tensors = takes_past(LaunchForm::few_tensors);
  form.many_values = parts.runtime.size() > LaunchForm::few_values;
  form.has_workspace = parts.has_workspace;
  form.has_most =
      parts.axes > LaunchForm::few_axes || parts.runtime.size() > LaunchForm::many || takes_past(LaunchForm::many);
  form.has_many = form.has_most || form.many_values || form.many_tensors;
  return form;
}

}  // namespace kiln::jit
