// Binder::bind. In most calls all tensors have elements, agree with each other, and are much smaller than what 64 bits
// can address. All else is left to Binder::read: nothing here says what is wrong.
#include <bit>
#include <cstring>

#include "manifest/binder.hpp"
#include "manifest/binding_program.hpp"
#include "manifest/overlap.hpp"

namespace kiln::manifest {
namespace {

using Program = BindingProgram;

bool has(std::uint32_t bits, std::size_t index) noexcept { return (bits >> index & 1U) != 0; }

template <class Visit>
inline void for_each(std::uint32_t bits, const Visit& visit) noexcept {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<std::size_t>(std::countr_zero(bits)));
}

/// 0xFF for each of the eight bits, the lowest first.
std::uint64_t bytes_of(std::uint32_t bits) noexcept {
  const std::uint64_t spread = (bits & 0xFFU) * 0x0101010101010101U & 0x8040201008040201U;
  return ((spread + 0x7F7F7F7F7F7F7F7FU) >> 7 & 0x0101010101010101U) * 0xFFU;
}

std::uint32_t header_of(const kiln::Tensor& view) noexcept {
  return manifest::header_of(view.type, view.rank, view.device);
}

/// One call. Functions that take it stay out of line, where not said otherwise, so that each has registers enough.
struct Call {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): zeros in the arrays cost as much as a tensor
  Call(const Op& of, const BindingParts& to, int on) noexcept
      : op(of), binding(to), device(static_cast<std::uint32_t>(on) << 16) {}

  const Op& op;
  const BindingParts binding;
  const std::uint32_t device;  // as in header_of()
  std::uint32_t given = 0;     // bit i: tensor i
  std::uint32_t set = 0;       // bit i: run-time value i, before the call
  std::uint32_t shown = 0;     // bit i: run-time value i, by a stride that is not its default
  // Only such parts of these are read as were written before.
  std::array<const kiln::Tensor*, max_tensors> views;  // of the tensors that are given
  std::array<Extent, max_tensors> extents;             // by step
  std::array<std::int64_t, Program::max_slots> frame;
};

inline bool take_operands(Call& call, std::span<const Operand> operands) noexcept {
  for (const Operand& each : operands) {
    const std::size_t index = each.tensor.index;
    if (index >= max_tensors || (each.tensor.op != call.op.tag && each.tensor.op != 0)) return false;
    if (has(call.given, index)) return false;
    call.given |= 1U << index;
    call.views[index] = &each.view;
  }
  return true;
}

/// Whether selections other than those that the tensors show are the combination's: as they were given, else defaults.
[[gnu::noinline]] bool has_selections(const Call& call, const Combination& combination) noexcept {
  const std::uint32_t given = call.binding.selections_given;
  for (std::size_t word = 0; word < combination.form.selections.size(); ++word) {
    const std::uint64_t differences = combination.form.selections[word] ^ selection_word(call.binding.problem, word);
    if ((differences & bytes_of(given >> (8 * word))) != 0) return false;
  }
  std::uint32_t unusual = combination.program.unusual_selections & ~given;
  for_each(call.given, [&](std::size_t tensor) {
    if (call.op.tensors[tensor].selection >= 0) unusual &= ~(1U << call.op.tensors[tensor].selection);
  });
  return unusual == 0;
}

/// Whether the combination may be what the call's types, choices and defaults come to: the types are not looked at.
inline bool may_be(const Call& call, const Combination& combination) noexcept {
  const Program& program = combination.program;
  const bool are_same = (combination.form.selections[0] ^ selection_word(call.binding.problem, 0)) == 0 &&
                        (combination.form.selections[1] ^ selection_word(call.binding.problem, 1)) == 0;
  // First, for a tensor may be none of the op's.
  if ((call.given & ~program.present) != 0 || (program.required & ~call.given) != 0) return false;
  const bool may_differ = !are_same || (program.unusual_selections & ~call.binding.selections_given) != 0;
  return !may_differ || has_selections(call, combination);
}

/// Whether a view that is not on the rank or device of the step may be so.
[[gnu::noinline]] bool may_be(const Call& call, const Program::TensorStep& step, const kiln::Tensor& view) noexcept {
  const std::uint32_t header = header_of(view), here = header & 0xFFFF0000U;
  if (here != call.device && view.device != kiln::Tensor::unknown) return false;
  const bool is_one_element = step.is_element && view.rank == 0;
  return header - here == step.header || (is_one_element && header - here == (step.header & 0xFFU));
}

/// For an optional tensor that is not given: its strides are their defaults.
[[gnu::noinline]] bool leave_out(Call& call, const Program::TensorStep& step) noexcept {
  for (std::size_t at = step.rank; at-- > 0;) {
    const Program::Dimension& each = step.dimensions[at];
    if (__builtin_mul_overflow(call.frame[each.left], call.frame[each.right], &call.frame[each.stride])) return false;
  }
  return true;
}

/// What the dimensions of a tensor come to, from the innermost to the outermost.
struct TensorWalk {
  std::int64_t* frame;
  std::uint64_t largest = 0;  // of all tensors
  std::uint64_t reach = 0;    // elements from the first to the last
  std::uint32_t shown = 0;
  bool is_nested = true;  // each stride is past all elements of the dimensions within

  [[gnu::always_inline]] bool take(const Program::Dimension& step, std::int64_t size, std::int64_t stride) noexcept {
    frame[step.written] = size;
    if (frame[step.compared] != size) return false;
    std::int64_t expected = 0;
    if (__builtin_mul_overflow(frame[step.left], frame[step.right], &expected)) return false;
    if (stride != expected && size > 1) [[unlikely]] {
      if (step.value == Program::none) return false;
      if (step.value != Program::later) {
        if (stride < frame[step.least]) return false;
        shown |= 1U << step.value;
        expected = stride;
      }
    }
    frame[step.stride] = expected;
    const auto steps = static_cast<std::uint64_t>(size) - 1, by = static_cast<std::uint64_t>(stride);
    largest |= steps | by;
    if (by <= reach) [[unlikely]]
      is_nested = false;
    reach += steps * by;
    return true;
  }
};

[[gnu::noinline]] bool take_tensors(Call& call, const Program& program) noexcept {
  TensorWalk walk{call.frame.data()};
  walk.frame[program.zero] = 0;
  walk.frame[program.one] = 1;
  for (std::size_t i = 2; i < program.constants.size(); ++i) walk.frame[program.zero + i] = program.constants[i];
  Extent* extent = call.extents.data();
  for (const Program::TensorStep& step : program.steps) {
    if (!has(call.given, step.tensor)) [[unlikely]] {
      if (!leave_out(call, step)) return false;
      *extent++ = {0, 0};
      continue;
    }
    const kiln::Tensor& view = *call.views[step.tensor];
    if (header_of(view) != step.header + call.device) [[unlikely]]
      if (!may_be(call, step, view)) return false;
    walk.reach = 0;
    walk.is_nested = true;
    const auto take = [&](std::size_t at) __attribute__((always_inline)) {
      return walk.take(step.dimensions[at], view.sizes[at], view.strides[at]);
    };
    switch (view.rank) {
      case 4:
        if (!take(3)) return false;
        [[fallthrough]];
      case 3:
        if (!take(2)) return false;
        [[fallthrough]];
      case 2:
        if (!take(1)) return false;
        [[fallthrough]];
      case 1:
        if (!take(0)) return false;
        break;
      default: break;
    }
    const auto address = reinterpret_cast<std::uint64_t>(view.address);
    if (address == 0 || (address & (step.element_bytes - 1U)) != 0) return false;
    if (!walk.is_nested) [[unlikely]]
      if (call.op.tensors[step.tensor].output && overlaps_itself(view)) return false;
    *extent++ = {address, address + (walk.reach + 1) * step.element_bytes};
  }
  call.shown = walk.shown;
  return walk.largest >> 29 == 0;  // no size is 0, and no extent has overflowed: it has 4 products and 8-byte elements
}

/// Whether the output and a tensor at which its extent meets another share memory.
[[gnu::noinline]] bool share_memory(const Call& call, const Combination& combination, std::size_t output) noexcept {
  const Program& program = combination.program;
  const std::size_t written = program.steps[output].tensor;
  const kiln::Tensor& view = *call.views[written];
  for (std::size_t other = 0; other < program.steps.size(); ++other) {
    if (other == output || !call.extents[output].meets(call.extents[other])) continue;
    const std::size_t tensor = program.steps[other].tensor;
    const kiln::Tensor& beside = *call.views[tensor];
    const bool may_share = !call.op.tensors[tensor].output && combination.form.may_share(written, tensor);
    if (may_share ? overlap_in_part(view, beside) : overlap(view, beside)) return true;
  }
  return false;
}

bool share_memory(const Call& call, const Combination& combination) noexcept {
  const Program& program = combination.program;
  const Extent* const end = call.extents.data() + program.steps.size();
  for (const std::uint8_t output : program.outputs) {
    const Extent of = call.extents[output];
    if (!of.meets(of)) continue;  // it is not given
    unsigned met = 0;
    for (const Extent* each = call.extents.data(); each != end; ++each) met += of.meets(*each) ? 1U : 0U;
    if (met != 1 && share_memory(call, combination, output)) return true;
  }
  return false;
}

bool solve(Call& call, const Program::SolvedSize& size, std::uint32_t& known) noexcept {
  std::int64_t value = 0;
  if (__builtin_sub_overflow(call.frame[size.slot], size.plus, &value) || value <= 0) return false;
  if (size.times != 1) {
    if (value % size.times != 0) return false;
    value /= size.times;
  }
  if (has(known, size.axis)) return call.frame[size.axis] == value;
  call.frame[size.axis] = value;
  known |= 1U << size.axis;
  return true;
}

/// Takes the axes that take_tensors() does not.
bool take_axes(Call& call, const Program& program) noexcept {
  std::uint32_t known = program.shown_axes;
  std::uint64_t differences = 0;
  const Problem& problem = call.binding.problem;
  for_each(call.binding.axes_given & program.all_axes, [&](std::size_t axis) {
    if (!has(known, axis)) call.frame[axis] = problem.axes[axis];
    differences |= static_cast<std::uint64_t>(call.frame[axis] ^ problem.axes[axis]);
  });
  known |= call.binding.axes_given;
  for (const Program::SolvedSize& each : program.solved)
    if (has(call.given, each.tensor) && !solve(call, each, known)) return false;
  return differences == 0 && (program.all_axes & ~known) == 0;
}

/// Takes the run-time values that take_tensors() does not.
bool take_values(Call& call, const Program& program) noexcept {
  auto& frame = call.frame;
  for (const Program::ValueStep& step : program.values) {
    const BoundValue& declared = *step.value;
    std::int64_t value = 0, bound = 0;
    if (declared.has_default && !declared.default_value.evaluate(frame, value)) return false;
    const bool is_given = step.tensor != Program::none && has(call.given, step.tensor);
    if (has(call.set, declared.index)) {
      value = call.binding.arguments.runtime[declared.index];
    } else if (is_given && call.views[step.tensor]->sizes[step.at] > 1) {
      const std::int64_t stride = call.views[step.tensor]->strides[step.at];
      if (!declared.has_default || stride != value) {
        frame[step.slot] = value = stride;
        if (declared.has_minimum && (!declared.minimum.evaluate(frame, bound) || value < bound)) return false;
        if (declared.has_maximum && (!declared.maximum.evaluate(frame, bound) || value > bound)) return false;
        call.shown |= 1U << declared.index;
      }
    }
    frame[step.slot] = value;
  }
  return true;
}

/// Whether sizes and strides that take_tensors() does not compare are what they should be.
bool agree(const Call& call, const Program& program) noexcept {
  std::int64_t number = 0;
  for (const Program::SizeStep& each : program.sizes) {
    if (!has(call.given, each.tensor) || call.views[each.tensor]->rank == 0) continue;
    if (!each.expected.evaluate(call.frame, number) || call.frame[each.slot] != number) return false;
  }
  for (const Program::StrideStep& each : program.strides) {
    if (!has(call.given, each.tensor) || call.views[each.tensor]->sizes[each.at] < 2) continue;
    if (!each.expected.evaluate(call.frame, number) || call.views[each.tensor]->strides[each.at] != number)
      return false;
  }
  return true;
}

[[gnu::noinline]] bool take_rest(Call& call, const Program& program) noexcept {
  return take_axes(call, program) && take_values(call, program) && agree(call, program);
}

[[gnu::noinline]] void fill(const Call& call, const Combination& combination) noexcept {
  const Program& program = combination.program;
  Problem& problem = call.binding.problem;
  Arguments& arguments = call.binding.arguments;
  for (std::size_t i = 0; i < program.axes; ++i) problem.axes[i] = call.frame[i];
  std::memcpy(problem.selections.data(), combination.form.selections.data(), sizeof problem.selections);
  static_assert(max_tensors % 4 == 0);
  for (std::size_t i = 0; i < program.tensors; i += 4) std::memset(&arguments.tensors[i], 0, 4 * sizeof(void*));
  for_each(call.given, [&](std::size_t tensor) { arguments.tensors[tensor] = call.views[tensor]->address; });
  for_each(call.shown, [&](std::size_t value) { arguments.runtime[value] = call.frame[program.axes + value]; });
  arguments.runtime_set = call.set | call.shown;
}

bool take(Call& call, const Combination& combination) noexcept {
  const Program& program = combination.program;
  const BindingParts& binding = call.binding;
  call.set = binding.arguments.runtime_set & (~combination.form.stride_values | binding.values_given);
  if ((call.set & program.shown_values) != 0 || !program.is_usable) return false;
  if (!take_tensors(call, program) || share_memory(call, combination)) return false;
  if (program.has_rest || (binding.axes_given & program.all_axes) != 0)
    if (!take_rest(call, program)) return false;
  fill(call, combination);
  return true;
}

}  // namespace

[[gnu::always_inline]] inline bool Binder::take_usual(const BindingParts& binding, std::span<const Operand> operands,
                                                      int device) const noexcept {
  Call call(op_, binding, device);
  if ((binding.problem.op != 0 && binding.problem.op != op_.tag) || !take_operands(call, operands)) return false;
  for (const Combination* each = combinations_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (may_be(call, *each) && take(call, *each)) return true;
  return false;
}

bool Binder::try_bind(const BindingParts& binding, std::span<const Operand> operands, int device) const noexcept {
  return take_usual(binding, operands, device);
}

void Binder::bind(Binding& binding, std::span<const Operand> operands, int device) const {
  const BindingParts parts{binding.problem, binding.arguments, binding.axes_given, binding.selections_given,
                           binding.values_given};
  if (!take_usual(parts, operands, device)) [[unlikely]]
    read(binding, operands, device);
}

}  // namespace kiln::manifest
