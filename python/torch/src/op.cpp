#include "op.hpp"

#include <algorithm>
#include <bit>

#include "empty.hpp"

namespace kiln_torch {
namespace {

constexpr std::size_t most_arguments = 32;
constexpr std::size_t most_outputs = 8;
constexpr std::size_t most_dimensions = 16;

/// Between enter and leave, the interpreter waits at its end.
class Entered {
 public:
  Entered() { check_kiln(kiln().enter()); }
  ~Entered() { kiln().leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
};

/// An argument's value in the stack, which is then ours. An optional one is behind a pointer.
StableIValue take(StableIValue& slot, bool is_optional, bool& is_given) {
  const StableIValue value = std::exchange(slot, 0);
  is_given = true;
  if (!is_optional) return value;
  const std::unique_ptr<StableIValue> owned(reinterpret_cast<StableIValue*>(value));
  is_given = owned != nullptr;
  return is_given ? *owned : 0;
}

/// The tensor with `extra` more dimensions than the op's, as one of the op's; false where no strides say that.
bool flatten(const Description& is, std::int64_t extra, kiln_tensor& view) {
  std::int64_t size = 1, stride = 1;
  for (std::int64_t i = extra; i >= 0; --i) {
    if (is.sizes[i] == 1) continue;
    if (size == 1)
      stride = is.strides[i];
    else if (size != 0 && is.sizes[i] != 0 && is.strides[i] != stride * size)
      return false;
    size *= is.sizes[i];
  }
  view.sizes[0] = size;
  view.strides[0] = stride;
  return true;
}

std::string text_of(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t each : sizes) text += (text.empty() ? "" : ", ") + std::to_string(each);
  return "[" + text + "]";
}

std::int64_t count_of(std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (const std::int64_t each : sizes) count *= each;
  return count;
}

std::span<const std::int64_t> sizes_of(const Description& is) { return {is.sizes, static_cast<std::size_t>(is.rank)}; }

}  // namespace

Op::Op(std::string name, Signature signature) : name_(std::move(name)), signature_(std::move(signature)) {
  if (signature_.arguments.size() > most_arguments || signature_.outputs.size() > most_outputs)
    fail("kiln::" + name_ + ": " + std::to_string(signature_.arguments.size()) + " arguments and " +
         std::to_string(signature_.outputs.size()) + " results, expected at most " + std::to_string(most_arguments) +
         " and " + std::to_string(most_outputs));
}

class Op::Call {
 public:
  Call(Op& op, StableIValue* stack) : op_(op), signature_(op.signature_), stack_(stack) { take_all(); }

  void run() {
    const Entered entered;
    for (std::size_t i = 0; i < count_; ++i)
      if (tensors_[i]) read(i);
    for (std::size_t i = 1; i < count_; ++i)
      if (tensors_[i] && signature_.arguments[i].is_flat) check_first_dimensions(i);
    solve();
    const Bound& bound = op_.on(device_);
    kiln_binding binding = bound.binding;
    set_values(bound, binding);
    allocate();
    if (bind(bound, binding) != KILN_OK) bind_copies(bound, binding);
    const auto sizes = std::span(binding.problem.axes).first(bound.axis_count);
    if (std::count(sizes.begin(), sizes.end(), 0) == 0)
      launch(bound, binding);
    else
      give_empty(bound);
    for (std::size_t i = 0; i < signature_.outputs.size(); ++i)
      stack_[i] = reinterpret_cast<StableIValue>(outputs_[i].release());
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { fail("kiln::" + op_.name_ + ": " + what); }

  void take_all() {
    count_ = signature_.arguments.size();
    for (std::size_t i = 0; i < count_; ++i) {
      const Argument& argument = signature_.arguments[i];
      bool is_given = false;
      values_[i] = take(stack_[i], argument.is_optional, is_given);
      is_given_[i] = is_given;
      const bool is_tensor = argument.kind == Argument::Kind::tensor || argument.kind == Argument::Kind::length;
      if (is_given && is_tensor) tensors_[i] = Tensor(reinterpret_cast<AtenTensorHandle>(values_[i]));
    }
  }

  void read(std::size_t i) {
    const Argument& argument = signature_.arguments[i];
    if (argument.is_dense) tensors_[i] = contiguous(std::move(tensors_[i]));
    Description& is = described_[i] = describe(tensors_[i], argument.name);
    if (is.device == KILN_DEVICE_HOST)
      refuse("tensor '" + argument.name +
             "' lies in host memory, expected memory of a CUDA device; move it with .cuda()");
    if (device_ < 0) device_ = is.device;
    if (is.rank > static_cast<std::int64_t>(most_dimensions))
      refuse("tensor '" + argument.name + "' has " + std::to_string(is.rank) + " dimensions, expected at most " +
             std::to_string(most_dimensions));
    if (argument.kind == Argument::Kind::length) return;
    std::int64_t extra = is.rank - argument.rank;
    if (!argument.is_flat && extra != 0 && std::count(is.sizes, is.sizes + is.rank, 1) == is.rank)
      extra = is.rank;  // one element, in whichever dimensions
    else if (!argument.is_flat || extra < -1)
      extra = 0;
    if (is.rank - extra > KILN_MAX_RANK)
      refuse("tensor '" + argument.name + "' has " + std::to_string(is.rank) + " dimensions, expected " +
             std::to_string(argument.rank));
    kiln_tensor& view = views_[i];
    view = KILN_TENSOR_INIT;
    view.type = is.type;
    view.device = is.device;
    view.address = is.address;
    view.rank = static_cast<std::int32_t>(is.rank - extra);
    if (extra > 0 && argument.is_flat && !flatten(is, extra, view)) {
      tensors_[i] = contiguous(std::move(tensors_[i]));
      is = describe(tensors_[i], argument.name);
      view.address = is.address;
      flatten(is, extra, view);
    }
    if (extra < 0) view.sizes[0] = 1;
    for (std::int64_t to = extra == 0 ? 0 : 1; to < view.rank; ++to) {
      view.sizes[to] = is.sizes[to + extra];
      view.strides[to] = is.strides[to + extra];
    }
  }

  /// [3, 2, cols] beside [2, 3, cols] has as many rows, and another meaning. For one number a row, ones in front are left out.
  void check_first_dimensions(std::size_t i) const {
    const auto first_dimensions = [this](std::size_t of) {
      const std::int64_t count = described_[of].rank - signature_.arguments[of].rank + 1;
      return sizes_of(described_[of]).first(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
    };
    auto expected = first_dimensions(0), found = first_dimensions(i);
    const auto wanted = expected;
    if (signature_.arguments[i].rank == 1)
      for (auto* each : {&expected, &found})
        while (!each->empty() && each->front() == 1) *each = each->subspan(1);
    if (!std::equal(found.begin(), found.end(), expected.begin(), expected.end()))
      refuse("tensor '" + signature_.arguments[i].name + "' has shape " + text_of(sizes_of(described_[i])) +
             ", expected the first dimensions of '" + signature_.arguments[0].name + "', " + text_of(wanted));
  }

  void solve() {
    if (device_ < 0) refuse("no tensor is given");
    for (std::size_t i = 0, known = signature_.axes.size(); i < count_; ++i) {
      if (signature_.arguments[i].kind != Argument::Kind::axis) continue;
      for (std::size_t axis = 0; axis < known; ++axis)
        if (signature_.axes[axis] == signature_.arguments[i].name) axes_[axis] = static_cast<std::int64_t>(values_[i]);
    }
    for (const Solve& each : signature_.solves)
      axes_[each.axis] = (size_of(each.argument, each.dimension) - each.plus) / each.times * each.over;
  }

  std::int64_t size_of(std::size_t argument, std::size_t dimension) const {
    const kiln_tensor& view = views_[argument];
    if (static_cast<std::int64_t>(dimension) >= view.rank) {
      const Argument& named = signature_.arguments[argument];
      refuse("tensor '" + named.name + "' has " + std::to_string(described_[argument].rank) + " dimensions, expected " +
             std::to_string(named.rank) + (named.is_flat ? " or more" : ""));
    }
    return view.sizes[dimension];
  }

  void set_values(const Bound& bound, kiln_binding& binding) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (!is_given_[i]) continue;
      const std::uint32_t id = bound.arguments[i];
      switch (signature_.arguments[i].kind) {
        case Argument::Kind::tensor: break;
        case Argument::Kind::axis: give_axis(binding, id, static_cast<std::int64_t>(values_[i])); break;
        case Argument::Kind::real:
          check_kiln(kiln().set_real(&binding.arguments, id, std::bit_cast<double>(values_[i])));
          break;
        case Argument::Kind::integer:
          check_kiln(kiln().set_integer(&binding.arguments, id, static_cast<std::int64_t>(values_[i])));
          break;
        case Argument::Kind::length:
          if (described_[i].type != KILN_I32)
            refuse("length '" + signature_.arguments[i].name + "' is no tensor of one i32");
          check_kiln(
              kiln().set_length(&binding.arguments, id, static_cast<const std::int32_t*>(described_[i].address)));
          break;
      }
    }
    for (std::size_t i = 0; i < signature_.sizes.size(); ++i)
      if (const Size& each = signature_.sizes[i]; is_given_[each.argument])
        check_kiln(kiln().set_integer(&binding.arguments, bound.sizes[i], size_of(each.argument, each.dimension)));
    for (const Solve& each : signature_.solves)
      if (each.is_given) give_axis(binding, bound.axes[each.axis], axes_[each.axis]);
  }

  static void give_axis(kiln_binding& binding, std::uint32_t id, std::int64_t size) {
    binding.problem.axes[id] = size;
    binding.axes_given |= 1U << id;
  }

  void allocate() {
    for (std::size_t at = 0; at < signature_.outputs.size(); ++at) {
      const Output& each = signature_.outputs[at];
      kiln_tensor& view = output_views_[at];
      view = KILN_TENSOR_INIT;
      view.type = each.types[static_cast<std::size_t>(described_[each.like].type)];
      view.device = device_;
      view.rank = static_cast<std::int32_t>(each.rank);
      std::int64_t step = 1;
      for (auto i = static_cast<std::size_t>(each.rank); i-- > 0;) {
        view.sizes[i] = evaluate(each.dims[i], axes_);
        view.strides[i] = step;
        step *= std::max<std::int64_t>(view.sizes[i], 1);
      }
      std::array<std::int64_t, most_dimensions> sizes;
      std::size_t rank = 0;
      const Description& first = described_[0];
      const std::int64_t extra = each.is_flat ? first.rank - signature_.arguments[0].rank : 0;
      for (std::int64_t i = 0; extra > 0 && i <= extra; ++i) sizes[rank++] = first.sizes[i];
      for (std::int64_t i = extra == 0 ? 0 : 1; i < each.rank; ++i) sizes[rank++] = view.sizes[i];
      outputs_[at] = empty(std::span(sizes).first(rank), view.type, device_);
      void* address = nullptr;
      check_torch(aoti_torch_get_data_ptr(outputs_[at].get(), &address), "reading an output");
      view.address = address;
    }
  }

  kiln_status bind(const Bound& bound, kiln_binding& binding) {
    std::array<kiln_tensor, most_arguments + most_outputs> operands;
    std::size_t count = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!tensors_[i] || signature_.arguments[i].kind != Argument::Kind::tensor) continue;
      operands[count] = views_[i];
      operands[count++].id = bound.arguments[i];
    }
    for (std::size_t i = 0; i < signature_.outputs.size(); ++i) {
      operands[count] = output_views_[i];
      operands[count++].id = bound.outputs[i];
    }
    return kiln().bind(bound.op, &binding, operands.data(), count);
  }

  /// The op does not take a layout, as torch's own ops do not: inputs that are not dense are copied, the smallest first, until it does. Pools of pages
  /// are not: they are most of a GPU's memory.
  void bind_copies(const Bound& bound, kiln_binding& binding) {
    std::string why = kiln().error();
    const bool has_pages =
        std::ranges::any_of(signature_.sizes, [](const Size& each) { return each.value == "page_size"; });
    std::vector<std::size_t> inputs;
    for (std::size_t i = 0; i < count_; ++i) {
      const Argument& argument = signature_.arguments[i];
      const bool is_pool = has_pages && (argument.name == "k" || argument.name == "v");
      if (tensors_[i] && argument.kind == Argument::Kind::tensor && !argument.is_mutated && !is_pool)
        inputs.push_back(i);
    }
    std::ranges::sort(inputs, {}, [&](std::size_t i) { return count_of(sizes_of(described_[i])); });
    for (const std::size_t i : inputs) {
      const void* const before = described_[i].address;
      tensors_[i] = contiguous(std::move(tensors_[i]));
      if (describe(tensors_[i], signature_.arguments[i].name).address == before) continue;
      read(i);
      binding = bound.binding;
      set_values(bound, binding);
      if (bind(bound, binding) == KILN_OK) return;
      why = kiln().error();
    }
    fail(why);
  }

  /// A size is 0, for which a launch does nothing. What has no elements is complete.
  void give_empty(const Bound& bound) {
    bool has_elements = false;
    for (std::size_t i = 0; i < signature_.outputs.size(); ++i) {
      fill(outputs_[i], 0);
      has_elements = has_elements || count_of(std::span(output_views_[i].sizes).first(signature_.outputs[i].rank)) > 0;
    }
    bool has_others = false;  // that follow a product
    for (std::size_t i = 0; i < count_; ++i) {
      if (!tensors_[i]) continue;
      has_elements = has_elements || (signature_.arguments[i].is_mutated && count_of(sizes_of(described_[i])) > 0);
      has_others = has_others || (i > 1 && !signature_.arguments[i].is_mutated);
    }
    if (!has_elements || !signature_.folder.empty()) return;
    const EmptyRule* rule = nullptr;
    std::string_view empty;
    for (std::size_t i = 0; i < signature_.axes.size() && rule == nullptr; ++i) {
      if (axes_[i] != 0) continue;
      empty = signature_.axes[i];
      rule = find_empty_rule(signature_.op, empty);
    }
    if (rule == nullptr)
      refuse("axis '" + std::string(empty) + "' is 0, expected at least 1, because a result has elements");
    for (std::size_t i = 0; i < signature_.outputs.size(); ++i)
      if (signature_.outputs[i].name == rule->output) fill(outputs_[i], rule->value);
    if (rule->on_zeros && has_others) launch_on_zeros(bound);
  }

  void launch_on_zeros(const Bound& bound) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (!tensors_[i] || count_of(sizes_of(described_[i])) > 0) continue;
      std::array<std::int64_t, most_dimensions> sizes{};
      const Description& is = described_[i];
      const bool is_scale = is.type == KILN_F32 && described_[0].type != KILN_F32;  // of 128 neighbours
      std::replace_copy(is.sizes, is.sizes + is.rank, sizes.begin(), std::int64_t{0}, std::int64_t{is_scale ? 1 : 128});
      tensors_[i] = empty(std::span(sizes).first(static_cast<std::size_t>(is.rank)), is.type, device_);
      fill(tensors_[i], 0);
      read(i);
    }
    solve();
    kiln_binding binding = bound.binding;
    set_values(bound, binding);
    check_kiln(bind(bound, binding));
    launch(bound, binding);
  }

  void launch(const Bound& bound, const kiln_binding& binding) const {
    const kiln_stream stream = current_stream(device_);
    kiln_status status = kiln().try_launch(bound.op, &binding.problem, &binding.arguments, stream, nullptr);
    if (status == KILN_NOT_READY) status = kiln().launch(bound.op, &binding.problem, &binding.arguments, stream);
    check_kiln(status);
  }

  Op& op_;
  const Signature& signature_;
  StableIValue* stack_;
  std::size_t count_ = 0;
  std::int32_t device_ = -1;
  std::array<StableIValue, most_arguments> values_;
  std::array<bool, most_arguments> is_given_;
  std::array<Tensor, most_arguments> tensors_;
  std::array<Description, most_arguments> described_;
  std::array<kiln_tensor, most_arguments> views_, output_views_;
  std::array<std::int64_t, KILN_MAX_AXES> axes_{};
  std::array<Tensor, most_outputs> outputs_;
};

void Op::call(StableIValue* stack) { Call(*this, stack).run(); }

const Bound& Op::on(std::int32_t device) {
  if (device < 0 || device >= static_cast<std::int32_t>(by_device_.size()))
    fail("kiln::" + name_ + ": a tensor lies on device " + std::to_string(device) + ", expected 0 to 15");
  auto& known = by_device_[static_cast<std::size_t>(device)];
  if (const Bound* found = known.load(std::memory_order_acquire)) [[likely]]
    return *found;
  auto made = bind(device);
  const std::lock_guard lock(making_);
  if (const Bound* found = known.load(std::memory_order_acquire)) return *found;
  known.store(made.get(), std::memory_order_release);
  return *made.release();  // ops live as long as the process
}

std::unique_ptr<Bound> Op::bind(std::int32_t device) const {
  auto made = std::make_unique<Bound>();
  const kiln_python_table& with = kiln();
  check_kiln(with.find_op(signature_.op.c_str(), signature_.folder.c_str(), device, &made->op));
  kiln_op_info info = KILN_OP_INFO_INIT;
  check_kiln(with.op_info(made->op, &info));
  made->axis_count = info.axes;
  std::vector<kiln_setting> words;
  for (const auto& [name, value] : signature_.words) words.push_back(KILN_WORD(name.c_str(), value.c_str()));
  check_kiln(with.op_binding(made->op, words.data(), words.size(), nullptr, 0, &made->binding));
  const auto add = [&](std::vector<std::uint32_t>& to, auto function, const std::string& name) {
    check_kiln(function(made->op, name.c_str(), &to.emplace_back()));
  };
  for (const Argument& each : signature_.arguments) {
    const bool is_axis = each.kind == Argument::Kind::axis || each.kind == Argument::Kind::length;
    add(made->arguments,
        each.kind == Argument::Kind::tensor ? with.op_tensor
        : is_axis                           ? with.op_axis
                                            : with.op_value,
        each.name);
  }
  for (const Size& each : signature_.sizes) add(made->sizes, with.op_value, each.value);
  for (const Output& each : signature_.outputs) add(made->outputs, with.op_tensor, each.name);
  for (const std::string& each : signature_.axes) add(made->axes, with.op_axis, each);
  return made;
}

}  // namespace kiln_torch
