#include "jit/launch_form.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "jit/launch_defaults.hpp"

namespace kiln::jit {
namespace {

/// Whether an integer's default always lies within the type's range and the bounds, if slots lie in these ranges.
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

/// Calls `visit` with each argument; with the members of a pack in its place.
template <typename Visit>
void each_loaded(const std::vector<LoadedArgument>& arguments, const Visit& visit) {
  for (const LoadedArgument& each : arguments)
    if (each.kind == manifest::ArgumentKind::pack)
      each_loaded(each.members, visit);
    else
      visit(each);
}

/// Returns the slots that launches read, those of defaults among them where the value is read that has the default.
std::set<int> slots_read(const LaunchFormParts& parts) {
  std::set<int> slots;
  for (const LoadedPass& pass : parts.passes) {
    for (const manifest::Expression& size : pass.grid) insert_slots(size, slots);
    each_loaded(pass.arguments, [&](const LoadedArgument& argument) {
      if (argument.kind == manifest::ArgumentKind::runtime) slots.insert(argument.index);
      insert_slots(argument.value, slots);
      if (!argument.absent)
        for (const int slot : slots_of(argument, parts.op)) slots.insert(slot);
    });
  }
  for (const manifest::Expression& each : parts.constraints) insert_slots(each, slots);
  for (const manifest::Runtime& each : parts.runtime)
    for (const auto* bound : {&each.minimum, &each.maximum})
      if (*bound) insert_slots(**bound, slots);
  for (std::size_t i = parts.runtime.size(); i-- > 0;) {  // a default reads earlier values alone
    const auto& value = parts.runtime[i].default_integer;
    if (value && slots.contains(parts.layout.values[i])) insert_slots(*value, slots);
  }
  return slots;
}

class PassMaker {
 public:
  /// `first_value`: the index in CallFrame::values of the pass's first value.
  PassMaker(const LoadedPass& pass, const LaunchFormParts& parts, std::size_t first_value)
      : layout_(parts.layout), ranges_(parts.op), has_workspace_(parts.has_workspace), values_(first_value) {
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
    form_.arguments = pass.arguments.size();
    form_.past_values = static_cast<std::uint8_t>(values_);
    form_.has_more = !form_.computed.empty() || maps() > 0;
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
      case manifest::ArgumentKind::tensor: return offset_of_slot(slot_of_tensor(argument));
      case manifest::ArgumentKind::view:
      case manifest::ArgumentKind::workspace_view:
      case manifest::ArgumentKind::pack: return place_words(argument);
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

  [[nodiscard]] std::size_t slot_of_tensor(const LoadedArgument& argument) const {
    return layout_.tensors[static_cast<std::size_t>(argument.index)];
  }
  using Words = std::vector<PassForm::Computed>;

  static PassForm::Computed slot_word(std::size_t slot) {
    return {manifest::ArgumentKind::tensor, 0, static_cast<std::int64_t>(slot), {}, {}};
  }
  [[nodiscard]] PassForm::Computed formula_word(const manifest::Expression& value,
                                                const manifest::Range& limits = {}) const {
    const manifest::Formula formula(value.within(ranges_));
    const auto slot = formula.multiple();
    if (slot && slot->times == 1 && fits(*slot, limits)) return slot_word(slot->slot);
    return {manifest::ArgumentKind::expression, 0, 0, formula, limits};
  }
  void add_words(const LoadedArgument& argument, Words& words) const {
    switch (argument.kind) {
      case manifest::ArgumentKind::pack:
        for (const LoadedArgument& each : argument.members) add_words(each, words);
        return;
      case manifest::ArgumentKind::axis:
      case manifest::ArgumentKind::runtime:
        words.push_back(slot_word(static_cast<std::size_t>(argument.index)));
        return;
      case manifest::ArgumentKind::expression: words.push_back(formula_word(argument.value, argument.limits)); return;
      case manifest::ArgumentKind::workspace:
      case manifest::ArgumentKind::zeroed_workspace:
        words.push_back({argument.kind, 0, argument.offset, {}, {}});
        return;
      default: break;
    }
    if (argument.absent) {
      words.resize(words.size() + 1 + argument.strides.size(), {manifest::ArgumentKind::expression, 0, 0, {}, {}});
      return;
    }
    if (argument.kind == manifest::ArgumentKind::workspace_view)
      words.push_back({argument.zeroed ? manifest::ArgumentKind::zeroed_workspace : manifest::ArgumentKind::workspace,
                       0,
                       argument.offset,
                       {},
                       {}});
    else
      words.push_back(slot_word(slot_of_tensor(argument)));
    for (const manifest::Expression& each : argument.strides) words.push_back(formula_word(each));
  }

  /// Returns the first of the slots in which the frame has these words one after another, if it has.
  [[nodiscard]] std::optional<std::size_t> slot_of(const Words& words) const {
    const auto known = std::find_if(words.begin(), words.end(), [](const PassForm::Computed& each) {
      return each.kind == manifest::ArgumentKind::tensor;
    });
    if (known == words.end()) return std::nullopt;
    const std::int64_t first = known->offset - (known - words.begin());
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::int64_t slot = first + static_cast<std::int64_t>(i);
      const bool lies_there = words[i].kind == manifest::ArgumentKind::tensor
                                  ? words[i].offset == slot
                                  : words[i].kind == manifest::ArgumentKind::expression &&
                                        words[i].value.constant_value() == 0 && layout_.is_zero(slot);
      if (!lies_there) return std::nullopt;
    }
    return static_cast<std::size_t>(first);
  }

  std::size_t place_words(const LoadedArgument& argument) {
    Words words;
    add_words(argument, words);
    if (const auto slot = slot_of(words)) return offset_of_slot(*slot);
    const std::size_t begin = offsetof(CallFrame, values) + values_ * sizeof(std::int64_t);
    for (PassForm::Computed& each : words) {
      const auto number = each.kind == manifest::ArgumentKind::expression ? each.value.constant_value() : std::nullopt;
      const bool is_nowhere = is_workspace(each.kind) && !has_workspace_;
      if (is_nowhere || (number && each.limits.contains(*number)))
        value(number.value_or(0));
      else
        computed(std::move(each));
    }
    return begin;
  }
  static bool is_workspace(manifest::ArgumentKind kind) {
    return kind == manifest::ArgumentKind::workspace || kind == manifest::ArgumentKind::zeroed_workspace;
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

  const FrameLayout& layout_;
  std::span<const manifest::Range> ranges_;
  bool has_workspace_;
  std::size_t values_;  // used elements of CallFrame::values
  PassForm form_;
};

LaunchForm::Bucketed bucketed(std::size_t axis, const manifest::Range& range) {
  const auto lowest = static_cast<std::uint64_t>(range.lowest);
  return {lowest, static_cast<std::uint64_t>(range.highest) - lowest, axis};
}

/// At most, of those that lie elsewhere in the frame.
std::size_t values_of(const LoadedArgument& argument) {
  switch (argument.kind) {
    case manifest::ArgumentKind::workspace:
    case manifest::ArgumentKind::zeroed_workspace:
    case manifest::ArgumentKind::expression:
    case manifest::ArgumentKind::workspace_map: return 1;
    case manifest::ArgumentKind::view:
    case manifest::ArgumentKind::workspace_view: return 1 + argument.strides.size();
    case manifest::ArgumentKind::pack: {
      std::size_t values = 0;
      for (const LoadedArgument& each : argument.members) values += std::max<std::size_t>(1, values_of(each));
      return values;
    }
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

/// Adds each tensor that is checked, or that takes part and a kernel takes. The address of any other is null.
void add_tensors(const LaunchFormParts& parts, LaunchForm& form) {
  std::array<bool, max_tensors> taken{};
  for (const LoadedPass& pass : parts.passes)
    each_loaded(pass.arguments, [&](const LoadedArgument& each) {
      if ((each.kind == manifest::ArgumentKind::tensor || each.kind == manifest::ArgumentKind::view) && !each.absent)
        taken[static_cast<std::size_t>(each.index)] = true;
    });
  for (std::size_t i = 0; i < max_tensors; ++i) {
    const TensorCheck check = i < parts.tensors.size() ? parts.tensors[i] : TensorCheck{0, false};
    if (taken[i] || check.mask != 0 || check.required)
      form.tensors.push_back({static_cast<std::uint32_t>(check.mask),
                              check.required ? std::uint8_t{1} : std::uint8_t{0}, static_cast<std::uint8_t>(i),
                              parts.layout.tensors[i]});
  }
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
    form.has_also = runtime.lower->reached && runtime.lower->value == 0;  // -0.0 is not less, and its bits are negative
    form.also = bits_of(runtime.type, -0.0);
    form.given_holds = false;
    const auto is_taken = [&](std::int64_t bits) {
      return taken.contains(bits) || (form.has_also && bits == form.also);
    };
    form.value_holds = value && is_taken(bits_of(runtime.type, *value));
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
  const FrameLayout& layout = parts.layout;
  form.axes = static_cast<std::uint8_t>(layout.axes);
  form.values = layout.values;
  form.has_many = layout.axes > FrameLayout::few_axes || layout.as_declared;
  for (std::size_t i = 0; i < layout.axes; ++i)
    if (!parts.op[i].single()) form.bucket.push_back(bucketed(i, parts.bucket[i]));
  const std::set<int> read = slots_read(parts);
  Defaults defaults(parts);
  std::vector<manifest::Range> checked(parts.op.begin(), parts.op.end());
  for (std::size_t i = 0; i < parts.runtime.size(); ++i) {
    RuntimeForm& each =
        form.runtime.emplace_back(form_of(parts.runtime[i], parts.op, parts.op[layout.values[i]], checked));
    const auto least = each.has_minimum ? each.minimum.constant_value() : std::nullopt;
    manifest::Range& range = checked[layout.values[i]];
    if (least) range.lowest = std::max(range.lowest, *least);
    const auto most = each.has_maximum ? each.maximum.constant_value() : std::nullopt;
    if (most) range.highest = std::min(range.highest, *most);
    const auto constant = each.has_value && each.value_holds ? each.value.constant_value() : std::nullopt;
    each.is_read = parts.reads_all || !each.has_value || read.contains(layout.values[i]);
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
    if (is_used(parts, layout.values[i])) form.constrained |= 1U << i;
  form.passes = pass_forms(parts);
  form.has_workspace = parts.has_workspace;
  add_tensors(parts, form);
  return form;
}

}  // namespace kiln::jit
