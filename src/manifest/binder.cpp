#include "manifest/binder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kiln/error.hpp"
#include "manifest/binding_program.hpp"
#include "manifest/overlap.hpp"
#include "manifest/problem.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

/// One call of bind(): what is known so far.
class Reading {
 public:
  Reading(const Op& op, const BindingForm& form, Binding& binding, std::span<const Operand> operands)
      : op_(op), form_(form), binding_(binding), operands_(operands), known_(binding.axes_given) {
    std::copy_n(binding.problem.axes.begin(), op.axes.size(), frame_.begin());
  }

  void read_sizes() {
    for (const Operand& each : operands_) {
      const BoundTensor& tensor = check_rank(each);
      for (std::size_t at = 0; at < each.view.rank; ++at)
        if (!take_size(each, tensor.sizes[at], at)) has_open_sizes_ = true;
    }
    require_all();
    std::copy_n(frame_.begin(), op_.axes.size(), binding_.problem.axes.begin());
  }

  void read_strides() {
    bool has_open = false;
    for (const Operand& each : operands_) {
      const BoundTensor& tensor = form_.tensors[each.tensor.index];
      if (is_empty(each)) continue;  // its strides say nothing
      for (std::size_t at = 0; at < each.view.rank; ++at)
        if (each.view.sizes[at] > 1 && !take_stride(each, tensor.strides[at], at)) has_open = true;
    }
    settle_values();
    if (has_open_sizes_) compare_open_sizes();
    if (has_open) compare_open_strides();
  }

  void place(int device) {
    for (std::size_t i = 0; i < op_.tensors.size(); ++i) binding_.arguments.tensors[i] = nullptr;
    for (const Operand& each : operands_) {
      const kiln::Tensor& view = each.view;
      const auto address = reinterpret_cast<std::uint64_t>(view.address);
      const bool is_missing = address == 0 && !is_empty(each) && form_.tensors[each.tensor.index].required;
      const bool is_misaligned = (address & static_cast<std::uint64_t>(size_of(view.type) - 1)) != 0;
      const bool is_elsewhere = view.device != device && view.device != kiln::Tensor::unknown;
      if (is_missing || is_misaligned || is_elsewhere) [[unlikely]]
        refuse_place(each, is_missing, is_misaligned, device);
      if (!is_empty(each) && !extent_of(view)) [[unlikely]]
        refuse_extent(each);
      binding_.arguments.tensors[each.tensor.index] = view.address;
    }
    if (empty_ == 0) check_overlap();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}: {}", op_.name, what));
  }
  [[nodiscard]] bool is_empty(const Operand& operand) const { return (empty_ >> operand.tensor.index & 1U) != 0; }
  [[nodiscard]] const Tensor& tensor_of(const Operand& operand) const { return op_.tensors[operand.tensor.index]; }
  [[nodiscard]] std::string shape_text(const Operand& operand) const {
    std::vector<std::string> texts;
    for (const Expression& each : tensor_of(operand).shape) texts.push_back(each.text());
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }

  const BoundTensor& check_rank(const Operand& operand) {
    const BoundTensor& tensor = form_.tensors[operand.tensor.index];
    const bool is_element = operand.view.rank == 0 && tensor.is_element;
    if (!tensor.present || (operand.view.rank != tensor.rank && !is_element)) [[unlikely]]
      refuse_rank(operand, tensor);
    given_ |= 1U << operand.tensor.index;
    return tensor;
  }

  [[noreturn, gnu::cold]] void refuse_rank(const Operand& operand, const BoundTensor& tensor) const {
    if (!tensor.present)
      fail(fmt::format("tensor '{}' is given, and the op has it only where {}", tensor_of(operand).name,
                       tensor_of(operand).when->text()));
    fail(fmt::format("tensor '{}' has {} dimension{}, expected {}: {}", tensor_of(operand).name, operand.view.rank,
                     operand.view.rank == 1 ? "" : "s", tensor.rank, shape_text(operand)));
  }

  /// Returns false for a size that is compared once all axes are known.
  bool take_size(const Operand& operand, const BoundNumber& expected, std::size_t at) {
    const std::int64_t size = operand.view.sizes[at];
    if (size <= 0) [[unlikely]] {
      if (size < 0) refuse_size(operand, at, "0 or more");
      empty_ |= 1U << operand.tensor.index;
    }
    switch (expected.kind) {
      case BoundNumber::Kind::constant:
        if (size != expected.plus) [[unlikely]]
          refuse_size(operand, at, fmt::to_string(expected.plus));
        return true;
      case BoundNumber::Kind::axis: break;
      default: return false;
    }
    std::int64_t value = size;
    if (expected.times != 1 || expected.plus != 0) {
      value -= expected.plus;
      if (value < 0 || value % expected.times != 0) [[unlikely]]
        refuse_size(
            operand, at,
            fmt::format("{}, for a whole {}", tensor_of(operand).shape[at].text(), op_.axes[expected.index].name));
      value /= expected.times;
    }
    const std::uint32_t bit = 1U << expected.index;
    if ((known_ & bit) == 0) {
      frame_[expected.index] = value;
      known_ |= bit;
    } else if (frame_[expected.index] != value) [[unlikely]] {
      refuse_axis(operand, at, expected, value);
    }
    return true;
  }

  [[noreturn, gnu::cold]] void refuse_size(const Operand& operand, std::size_t at, const std::string& expected) const {
    fail(fmt::format("tensor '{}' of shape {} has {} in dimension {}, expected {}", tensor_of(operand).name,
                     shape_text(operand), operand.view.sizes[at], at, expected));
  }
  [[noreturn, gnu::cold]] void refuse_axis(const Operand& operand, std::size_t at, const BoundNumber& number,
                                           std::int64_t value) const {
    const std::string& axis = op_.axes[number.index].name;
    if ((binding_.axes_given >> number.index & 1U) != 0)
      refuse_size(operand, at, fmt::format("{} = {} as given", axis, frame_[number.index]));
    for (const Operand& each : operands_) {
      const BoundTensor& tensor = form_.tensors[each.tensor.index];
      for (std::size_t other = 0; other < each.view.rank; ++other)
        if (tensor.sizes[other].kind == BoundNumber::Kind::axis && tensor.sizes[other].index == number.index)
          refuse_size(operand, at,
                      fmt::format("{} = {} as in '{}'{}", axis, frame_[number.index], tensor_of(each).name,
                                  value == operand.view.sizes[at] ? "" : fmt::format(", not {}", value)));
    }
    refuse_size(operand, at, axis);
  }

  void require_all() const {
    if ((form_.required & ~given_) != 0) [[unlikely]] {
      const auto missing = static_cast<std::size_t>(std::countr_zero(form_.required & ~given_));
      fail(fmt::format("tensor '{}' is not given, and these types and choices need it", op_.tensors[missing].name));
    }
    const std::uint32_t all = (1U << op_.axes.size()) - 1;
    if ((known_ & all) != all) [[unlikely]] {
      const auto unknown = static_cast<std::size_t>(std::countr_one(known_));
      fail(fmt::format("no tensor shows axis '{}'; give it to Op::binding as a setting", op_.axes[unknown].name));
    }
  }

  void compare_open_sizes() const {
    for (const Operand& each : operands_) {
      const BoundTensor& tensor = form_.tensors[each.tensor.index];
      for (std::size_t at = 0; at < each.view.rank; ++at) {
        const BoundNumber& expected = tensor.sizes[at];
        if (expected.kind != BoundNumber::Kind::formula && expected.kind != BoundNumber::Kind::runtime) continue;
        std::int64_t size = 0;
        if (!expected.formula.evaluate(frame_, size) || size != each.view.sizes[at]) [[unlikely]]
          refuse_size(each, at, fmt::format("{} = {}", tensor_of(each).shape[at].text(), size));
      }
    }
  }

  bool take_stride(const Operand& operand, const BoundNumber& expected, std::size_t at) {
    const std::int64_t stride = operand.view.strides[at];
    switch (expected.kind) {
      case BoundNumber::Kind::constant:
        if (stride != expected.plus) [[unlikely]]
          refuse_stride(operand, at, fmt::to_string(expected.plus));
        return true;
      case BoundNumber::Kind::axis:
        if (stride != frame_[expected.index] * expected.times + expected.plus) [[unlikely]]
          refuse_stride(operand, at, tensor_of(operand).strides[at].text());
        return true;
      case BoundNumber::Kind::runtime: break;
      case BoundNumber::Kind::formula: return false;
    }
    const std::uint32_t bit = 1U << expected.index;
    std::int64_t& slot = strides_[expected.index];
    if ((shown_ & bit) != 0 && slot != stride) [[unlikely]]
      refuse_stride(operand, at, fmt::format("{}, the {} of another tensor", slot, op_.runtime[expected.index].name));
    slot = stride;
    shown_ |= bit;
    return true;
  }

  [[noreturn, gnu::cold]] void refuse_stride(const Operand& operand, std::size_t at,
                                             const std::string& expected) const {
    fail(fmt::format("tensor '{}' has stride {} in dimension {}, expected {}", tensor_of(operand).name,
                     operand.view.strides[at], at, expected));
  }

  /// Sets the run-time values that are strides, in order: a default may use those before it. A default is not set, for
  /// which plans are folded.
  void settle_values() {
    Arguments& arguments = binding_.arguments;
    arguments.runtime_set &= ~form_.stride_values | binding_.values_given;
    for (const BoundValue& each : form_.values) {
      const std::uint32_t bit = 1U << each.index;
      std::int64_t& slot = frame_[op_.axes.size() + each.index];
      slot = 0;
      const bool has_default = each.has_default && each.default_value.evaluate(frame_, slot);
      if ((arguments.runtime_set & bit) != 0) {
        slot = arguments.runtime[each.index];
        if ((shown_ & bit) != 0 && slot != strides_[each.index]) [[unlikely]]
          refuse_value(each, slot);
      } else if ((shown_ & bit) != 0 && !(has_default && slot == strides_[each.index])) {
        slot = strides_[each.index];
        std::int64_t bound = 0;
        if (each.has_minimum && (!each.minimum.evaluate(frame_, bound) || slot < bound)) [[unlikely]]
          refuse_bound(each, bound, "more");
        if (each.has_maximum && (!each.maximum.evaluate(frame_, bound) || slot > bound)) [[unlikely]]
          refuse_bound(each, bound, "less");
        arguments.runtime[each.index] = slot;
        arguments.runtime_set |= bit;
      }
    }
  }

  [[nodiscard]] std::string tensor_with(const BoundValue& stride) const {
    for (const Operand& each : operands_) {
      const BoundTensor& tensor = form_.tensors[each.tensor.index];
      for (std::size_t at = 0; at < each.view.rank; ++at)
        if (each.view.sizes[at] > 1 && tensor.strides[at].kind == BoundNumber::Kind::runtime &&
            tensor.strides[at].index == stride.index)
          return fmt::format("tensor '{}' has stride {} in dimension {}", tensor_of(each).name, strides_[stride.index],
                             at);
    }
    return "a tensor";
  }
  [[noreturn, gnu::cold]] void refuse_value(const BoundValue& stride, std::int64_t given) const {
    fail(fmt::format("{}, and {} is given as {}", tensor_with(stride), op_.runtime[stride.index].name, given));
  }
  [[noreturn, gnu::cold]] void refuse_bound(const BoundValue& stride, std::int64_t bound, std::string_view side) const {
    fail(fmt::format("{}, expected {} or {}", tensor_with(stride), bound, side));
  }

  void compare_open_strides() const {
    for (const Operand& each : operands_) {
      const BoundTensor& tensor = form_.tensors[each.tensor.index];
      for (std::size_t at = 0; at < each.view.rank; ++at) {
        if (tensor.strides[at].kind != BoundNumber::Kind::formula || each.view.sizes[at] < 2 || is_empty(each))
          continue;
        std::int64_t stride = 0;
        if (!tensor.strides[at].formula.evaluate(frame_, stride) || stride != each.view.strides[at]) [[unlikely]]
          refuse_stride(each, at, fmt::format("{} = {}", tensor_of(each).strides[at].text(), stride));
      }
    }
  }

  [[noreturn, gnu::cold]] void refuse_place(const Operand& operand, bool is_missing, bool is_misaligned,
                                            int device) const {
    const std::string& name = tensor_of(operand).name;
    if (is_missing) fail(fmt::format("tensor '{}' has the address null, expected device memory", name));
    if (is_misaligned)
      fail(fmt::format("tensor '{}' lies at {}, expected a multiple of its element's {} bytes", name,
                       fmt::ptr(operand.view.address), size_of(operand.view.type)));
    fail(fmt::format(
        "tensor '{}' lies {}, expected memory of device {}", name,
        operand.view.device == kiln::Tensor::host ? "in host memory" : fmt::format("on device {}", operand.view.device),
        device));
  }

  [[noreturn, gnu::cold]] void refuse_extent(const Operand& operand) const {
    const auto first = [&](const auto& numbers) {
      return fmt::join(std::span(numbers).first(operand.view.rank), ", ");
    };
    fail(fmt::format("tensor '{}' ends past what 64 bits can address, by its sizes [{}] and strides [{}]",
                     tensor_of(operand).name, first(operand.view.sizes), first(operand.view.strides)));
  }

  void check_overlap() const {
    std::array<Extent, max_tensors> extents;  // not zeroed, which would cost as much as a tensor
    for (std::size_t i = 0; i < operands_.size(); ++i) extents[i] = *extent_of(operands_[i].view);  // place() looked
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Operand& output = operands_[i];
      if (!tensor_of(output).output || output.view.address == nullptr) continue;
      if (overlaps_itself(output.view)) [[unlikely]]
        fail(fmt::format("the elements of output '{}' share memory, by its strides [{}]", tensor_of(output).name,
                         fmt::join(std::span(output.view.strides).first(output.view.rank), ", ")));
      for (std::size_t other = 0; other < operands_.size(); ++other)
        if (other != i && extents[i].meets(extents[other])) check_shared(output, operands_[other], other < i);
    }
  }
  /// `is_compared`: the pair was, where both are outputs.
  void check_shared(const Operand& output, const Operand& beside, bool is_compared) const {
    const bool is_output = tensor_of(beside).output;
    if ((is_output && is_compared) || beside.view.address == nullptr) return;
    if (is_output ? overlap(output.view, beside.view) : overlap_in_part(output.view, beside.view)) [[unlikely]]
      fail(fmt::format("output '{}' and {} '{}' share memory{}", tensor_of(output).name, is_output ? "output" : "input",
                       tensor_of(beside).name, is_output ? "" : ", and are not the same elements"));
    if (!is_output && !form_.may_share(output.tensor.index, beside.tensor.index) && overlap(output.view, beside.view))
        [[unlikely]]
      fail(
          fmt::format("output '{}' of shape {} and input '{}' of shape {} share memory; an op works in place only "
                      "where its manifest gives both one shape",
                      tensor_of(output).name, shape_text(output), tensor_of(beside).name, shape_text(beside)));
  }

  const Op& op_;
  const BindingForm& form_;
  Binding& binding_;
  std::span<const Operand> operands_;
  std::uint32_t known_;      // bit i: the size of axis i
  std::uint32_t given_ = 0;  // bit i: tensor i
  std::uint32_t empty_ = 0;  // bit i: tensor i, which has no elements
  bool has_open_sizes_ = false;
  std::uint32_t shown_ = 0;                                 // bit i: some tensor's stride is run-time value i
  std::array<std::int64_t, max_axes + max_runtime> frame_;  // of `known_` and of the run-time values settled so far
  std::array<std::int64_t, max_runtime> strides_;           // those of `shown_`
};

}  // namespace

Binder::~Binder() {
  for (Combination* each = combinations_.load(std::memory_order_acquire); each != nullptr;) {
    const std::unique_ptr<Combination> owned(each);
    each = owned->next;
  }
}

void Binder::read(Binding& binding, std::span<const Operand> operands, int device) const try {
  read_selections(binding, operands);
  Reading reading(op_, combination_of(binding.problem).form, binding, operands);
  reading.read_sizes();
  reading.read_strides();
  reading.place(device);
  binding.problem.op = op_.tag;  // a binding that was not made by Op::binding is, from here on
} catch (...) {
  if (binding.problem.op == op_.tag || binding.problem.op == 0) forget_sizes(op_, binding.problem, binding.axes_given);
  throw;
}

void Binder::read_selections(Binding& binding, std::span<const Operand> operands) const {
  Problem& problem = binding.problem;
  if (problem.op != 0 && problem.op != op_.tag)
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: the binding is another op's; make it by this op's Op::binding", op_.name));
  std::uint32_t known = binding.selections_given, seen = 0;
  for (std::uint32_t left = known; left != 0; left &= left - 1) {
    const auto at = static_cast<std::size_t>(std::countr_zero(left));
    if (at >= op_.selections.size() || problem.selections[at] >= op_.selections[at].values.size()) [[unlikely]]
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: choice number {} of the binding is number {}, which the op does not have; make "
                              "bindings by Op::binding",
                              op_.name, at, at < max_selections ? problem.selections[at] : 0));
  }
  for (const Operand& each : operands) {
    const std::size_t index = each.tensor.index;
    const bool is_own = index < op_.tensors.size() && (each.tensor.op == op_.tag || each.tensor.op == 0);
    if (!is_own || (seen >> index & 1U) != 0) [[unlikely]]
      throw Error(
          ErrorKind::bad_input,
          !is_own ? fmt::format("{}: a tensor of another op is given; take it from this op's Op::tensor", op_.name)
                  : fmt::format("{}: tensor '{}' is given twice, expected it once", op_.name, op_.tensors[index].name));
    seen |= 1U << index;
    const Tensor& tensor = op_.tensors[index];
    if (tensor.selection < 0) {
      if (each.view.type != tensor.dtype) [[unlikely]]
        throw Error(ErrorKind::bad_input, fmt::format("{}: tensor '{}' is {}, expected {}", op_.name, tensor.name,
                                                      to_string(each.view.type), to_string(tensor.dtype)));
      continue;
    }
    const auto at = static_cast<std::size_t>(tensor.selection);
    const Selection& selection = op_.selections[at];
    const auto found = std::find(selection.dtypes.begin(), selection.dtypes.end(), each.view.type);
    const auto value = static_cast<std::uint8_t>(found - selection.dtypes.begin());
    const bool is_known = (known >> at & 1U) != 0;
    if (found == selection.dtypes.end() || (is_known && problem.selections[at] != value)) [[unlikely]]
      throw Error(
          ErrorKind::bad_input,
          fmt::format("{}: tensor '{}' is {}, expected {}", op_.name, tensor.name, to_string(each.view.type),
                      is_known
                          ? fmt::format("{} = {}, as {}", selection.name, selection.values[problem.selections[at]],
                                        (binding.selections_given >> at & 1U) != 0 ? "was given" : "another tensor is")
                          : one_of(selection.values)));
    problem.selections[at] = value;
    known |= 1U << at;
  }
  for (std::size_t i = 0; i < op_.selections.size(); ++i)
    if ((known >> i & 1U) == 0) problem.selections[i] = op_.selections[i].default_beside(problem);
}

const Combination& Binder::combination_of(const Problem& problem) const {
  const SelectionWords asked = {selection_word(problem, 0), selection_word(problem, 1)};
  const auto find = [&]() -> const Combination* {
    for (const Combination* each = combinations_.load(std::memory_order_acquire); each != nullptr; each = each->next)
      if (each->form.selections == asked) return each;
    return nullptr;
  };
  if (const Combination* found = find()) return *found;
  check_allowed(op_, problem);
  auto made = std::make_unique<Combination>(op_, facts_, problem);
  const std::lock_guard lock(making_);
  if (const Combination* found = find()) return *found;
  made->next = combinations_.load(std::memory_order_relaxed);
  combinations_.store(made.get(), std::memory_order_release);
  return *made.release();
}

}  // namespace kiln::manifest
