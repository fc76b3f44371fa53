// Tensors that Binder takes in a few steps: the same ones, with the same result, as those that it reads one by one.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/binder.hpp"
#include "manifest/describe.hpp"
#include "manifest/problem.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

const void* memory_at(std::uint64_t address) { return reinterpret_cast<const void*>(address); }
std::uint64_t number_of(const void* address) { return reinterpret_cast<std::uint64_t>(address); }
constexpr std::uint64_t first_address = 0x10000000;

/// What a call makes of a binding, or why it refuses the tensors.
std::string outcome(const Op& op, Binding binding, const std::function<void(Binding&)>& call) {
  try {
    call(binding);
  } catch (const Error& error) {
    return error.what();
  }
  std::string text = to_string(op, binding.problem);
  for (const void* const address : binding.arguments.tensors) text += " " + std::to_string(number_of(address));
  for (std::size_t i = 0; i < op.runtime.size(); ++i)
    if ((binding.arguments.runtime_set >> i & 1U) != 0)
      text += " " + op.runtime[i].name + "=" + std::to_string(binding.arguments.runtime[i]);
  return text;
}

/// A binding with tensors for it.
struct Case {
  const Op& op;
  const Binder& binder;
  Binding binding;
  std::vector<Operand> operands;

  [[nodiscard]] std::string bound() const {
    return outcome(op, binding, [&](Binding& to) { binder.bind(to, operands, 0); });
  }
  [[nodiscard]] std::string read() const {
    return outcome(op, binding, [&](Binding& to) { binder.read(to, operands, 0); });
  }
  [[nodiscard]] bool is_taken() const {
    Binding to = binding;
    return binder.try_bind({to.problem, to.arguments, to.axes_given, to.selections_given, to.values_given}, operands,
                           0);
  }
};

/// The tensors that an op describes at a problem, and a binding to which they were bound before.
Case case_of(const Op& op, const Binder& binder, const Problem& problem, bool with_optional) {
  Case made{op, binder, {}, {}};
  made.binding.problem = problem;
  std::uint64_t address = first_address;
  std::uint32_t shown = 0;
  for (const TensorDescription& tensor : describe({op, testing::h200()}, problem).tensors) {
    if (!tensor.present || (tensor.optional && !with_optional)) continue;
    kiln::Tensor view;
    view.address = memory_at(address);
    address += static_cast<std::uint64_t>(tensor.bytes + 511) / 512 * 512;
    view.type = *tensor.element;
    view.rank = static_cast<std::uint8_t>(tensor.sizes.size());
    view.device = 0;
    std::copy(tensor.sizes.begin(), tensor.sizes.end(), view.sizes.begin());
    std::copy(tensor.default_strides.begin(), tensor.default_strides.end(), view.strides.begin());
    made.operands.push_back({tensor.id, view});
    for (const std::string& size : tensor.shape)
      for (std::size_t axis = 0; axis < op.axes.size(); ++axis)
        if (size == op.axes[axis].name) shown |= 1U << axis;
  }
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if ((shown >> i & 1U) == 0) made.binding.axes_given |= 1U << i;
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    if (!op.selections[i].is_type()) made.binding.selections_given |= 1U << i;
  binder.bind(made.binding, made.operands, 0);
  return made;
}

/// Calls `visit` for problems of all choices and types, each by itself.
void each_problem(const Op& op, const std::function<void(const Problem&)>& visit) {
  Problem problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    problem.axes[i] =
        std::clamp(op.axes[i].multiple_of * (std::int64_t{8} << (i % 3)), op.axes[i].minimum, op.axes[i].maximum);
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    for (std::size_t value = i == 0 ? 0 : 1; value < op.selections[i].values.size(); ++value) {
      Problem each = problem;
      each.selections[i] = static_cast<std::uint8_t>(value);
      for (std::size_t other = 0; other < op.selections.size(); ++other)
        if (other != i) each.selections[other] = op.selections[other].default_beside(each);
      if (is_allowed(op, each)) visit(each);
    }
}

/// Calls `visit` after each change of one thing about one tensor.
void each_change(Case& of_case, const std::function<void()>& visit) {
  const std::vector<Operand> whole = of_case.operands;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    kiln::Tensor& view = of_case.operands[i].view;
    const auto with = [&](const auto& change) {
      change();
      visit();
      of_case.operands = whole;
    };
    for (std::size_t at_dimension = 0; at_dimension < view.rank; ++at_dimension) {
      std::int64_t &size = view.sizes[at_dimension], &stride = view.strides[at_dimension];
      for (const std::int64_t other :
           {size + 1, size * 2, std::int64_t{1}, std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40})
        with([&] { size = other; });
      for (const std::int64_t other :
           {stride + 1, stride + 8, stride - 1, std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40})
        with([&] { stride = other; });
      with([&] { size = 1, stride = 12345; });
      for (std::size_t other = 0; other < view.rank; ++other) with([&] { stride = view.strides[other]; });
    }
    for (const DType type : {DType::bf16, DType::f16, DType::f32, DType::e4m3, DType::i32})
      with([&] { view.type = type; });
    for (const int device : {1, kiln::Tensor::unknown, kiln::Tensor::host})
      with([&] { view.device = static_cast<std::int16_t>(device); });
    with([&] { view.rank = static_cast<std::uint8_t>(view.rank - 1); });
    with([&] { view.rank = 0; });
    with([&] { view.address = nullptr; });
    with([&] { view.address = memory_at(number_of(view.address) + 1); });
    for (const Operand& other : whole) {
      with([&] { view.address = other.view.address; });
      with([&] { view.address = memory_at(number_of(other.view.address) + 16); });
    }
    with([&] { of_case.operands[i].tensor.op ^= 1U; });
    with([&] { of_case.operands[i].tensor.index = static_cast<std::uint8_t>(of_case.op.tensors.size()); });
    with([&] { of_case.operands[i].tensor.index = max_tensors; });
    with([&] { of_case.operands.push_back(whole[i]); });
    with([&] { of_case.operands.erase(of_case.operands.begin() + static_cast<std::ptrdiff_t>(i)); });
  }
}

void check_outcome(const Case& each) {
  const std::string bound = each.bound(), read = each.read();
  if (bound != read) CHECK(bound == read);  // not counted where it holds: there are very many
}

/// The op of the fixture with optional tensors, two of one stride and one of a bounded one, and a tensor of a choice.
Op scale_with_more() {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, "[tensors]\n", R"toml(both = { type = "i64", default = "cols", min = "cols" }
top  = { type = "i64", default = "cols", min = "cols", max = "cols + 4" }
[tensors]
)toml");
  folder.op =
      testing::replaced(folder.op, "y = { shape", R"toml(bias = { shape = ["cols"], dtype = "dtype", optional = true }
left  = { shape = ["rows", "cols"], strides = ["both", "1"], dtype = "f32", optional = true }
right = { shape = ["rows", "cols"], strides = ["both", "1"], dtype = "f32", optional = true }
upper = { shape = ["rows", "cols"], strides = ["top", "1"], dtype = "f32", optional = true }
limit = { shape = ["rows", "2"], dtype = "f32", when = 'mode == "saturate"' }
y = { shape)toml");
  return folder.parse();
}

std::vector<Op> all_ops() {
  std::vector<Op> ops = load_ops({});
  ops.push_back(scale_with_more());
  return ops;
}

}  // namespace

TEST_CASE("tensors of built-in ops are taken in steps, as when they are read one by one") {
  const DeviceFacts facts = testing::h200();
  std::size_t taken = 0;
  for (const Op& op : all_ops()) {
    const Binder binder(op, facts);
    each_problem(op, [&](const Problem& problem) {
      for (const bool with_optional : {false, true}) {
        CAPTURE(op.name + " " + to_string(op, problem));
        Case each = case_of(op, binder, problem, with_optional);
        CHECK(each.is_taken());
        check_outcome(each);
        const std::vector<Operand> whole = each.operands;
        for (std::size_t i = 0; i < whole.size(); ++i) {
          if (!op.tensors[whole[i].tensor.index].optional) continue;
          each.operands.erase(each.operands.begin() + static_cast<std::ptrdiff_t>(i));
          CHECK(each.is_taken());
          check_outcome(each);
          each.operands = whole;
        }
        each.binding.axes_given = ~0U;
        CHECK(each.is_taken());
        each.binding.axes_given = 0;
        check_outcome(each);
        each.binding.problem.op = op.tag + 1;
        check_outcome(each);
        ++taken;
      }
    });
  }
  CHECK(taken > 200);
}

TEST_CASE("whatever changes about one tensor, steps and reading come to the same") {
  const DeviceFacts facts = testing::h200();
  for (const Op& op : all_ops()) {
    const Binder binder(op, facts);
    each_problem(op, [&](const Problem& problem) {
      Case each = case_of(op, binder, problem, true);
      each_change(each, [&] { check_outcome(each); });
    });
  }
}

TEST_CASE("what was given to a binding is compared with tensors in steps too") {
  const Op op = scale_with_more();
  const DeviceFacts facts = testing::h200();
  const Binder binder(op, facts);
  each_problem(op, [&](const Problem& problem) {
    Case each = case_of(op, binder, problem, true);
    const Binding before = each.binding;
    for (std::uint32_t axes = 0; axes < 4; ++axes)
      for (std::uint32_t selections = 0; selections < 4; ++selections)
        for (const std::int64_t stride : {0, 63, 64, 96})
          for (const std::int64_t rows : {problem.axes[0], problem.axes[0] + 1}) {
            each.binding = before;
            each.binding.axes_given = axes;
            each.binding.selections_given = selections;
            each.binding.problem.axes[0] = rows;
            each.binding.arguments.runtime[1] = stride;
            each.binding.arguments.runtime_set = each.binding.values_given = stride == 0 ? 0 : 2;
            check_outcome(each);
            each.binding.problem.selections[1] ^= 1U;
            check_outcome(each);
            each.binding.problem.selections[0] ^= 1U;
            check_outcome(each);
          }
  });
}

TEST_CASE("a binding follows its tensors from call to call") {
  const Op op = scale_with_more();
  const DeviceFacts facts = testing::h200();
  const Binder binder(op, facts);
  constexpr TensorId x{0}, bias{1}, limit{5}, y{6};
  const void *const at_x = memory_at(first_address), *const at_y = memory_at(2 * first_address),
                    *const at_bias = memory_at(3 * first_address), *const at_limit = memory_at(4 * first_address);
  Binding binding{make_part(op, std::vector<Setting>{}).problem, {}, 0, 0, 0};
  const auto bind = [&](const std::vector<Operand>& operands) {
    // Once for a combination that is new, once more in steps.
    binder.bind(binding, operands, 0);
    return outcome(op, binding, [&](Binding& to) { binder.bind(to, operands, 0); });
  };
  const auto text = [&](const std::string& problem, const void* with_bias, const void* with_limit,
                        const std::string& stride) {
    std::string expected = problem;
    const void* const none = nullptr;
    for (const void* const each : {at_x, with_bias, none, none, none, with_limit, at_y})
      expected += " " + std::to_string(number_of(each));
    for (std::size_t i = 7; i < max_tensors; ++i) expected += " 0";
    return expected + stride;
  };
  const auto view = [](const void* address, DType type, std::int64_t rows, std::int64_t stride = 64) {
    return kiln::Tensor(address, type, {rows, 64}, {stride, 1}, 0);
  };
  using enum DType;
  CHECK(bind({{x, view(at_x, f32, 5)}, {y, view(at_y, f32, 5)}}) ==
        text("rows=5 cols=64 dtype=f32 mode=plain", nullptr, nullptr, ""));
  CHECK(bind({{x, view(at_x, f32, 6)}, {y, view(at_y, f32, 6)}}) ==
        text("rows=6 cols=64 dtype=f32 mode=plain", nullptr, nullptr, ""));
  CHECK(bind({{x, view(at_x, f32, 6, 96)}, {y, view(at_y, f32, 6)}}) ==
        text("rows=6 cols=64 dtype=f32 mode=plain", nullptr, nullptr, " stride=96"));
  CHECK(bind({{x, view(at_x, f32, 6)}, {bias, {at_bias, f32, {64}, 0}}, {y, view(at_y, f32, 6)}}) ==
        text("rows=6 cols=64 dtype=f32 mode=plain", at_bias, nullptr, ""));
  CHECK(bind({{y, view(at_y, bf16, 6)}, {x, view(at_x, bf16, 6)}}) ==
        text("rows=6 cols=64 dtype=bf16 mode=plain", nullptr, nullptr, ""));
  CHECK(bind({{x, view(at_x, bf16, 0, 0)}, {y, view(at_y, bf16, 0, 7)}}) ==
        text("rows=0 cols=64 dtype=bf16 mode=plain", nullptr, nullptr, ""));
  CHECK(bind({{x, view(at_x, bf16, 1, 7)}, {y, view(at_y, bf16, 1)}}) ==
        text("rows=1 cols=64 dtype=bf16 mode=plain", nullptr, nullptr, ""));
  binding.selections_given = 2;
  binding.problem.selections[1] = 1;
  CHECK(bind({{x, view(at_x, bf16, 6)}, {limit, {at_limit, f32, {6, 2}, 0}}, {y, view(at_y, bf16, 6)}}) ==
        text("rows=6 cols=64 dtype=bf16 mode=saturate", nullptr, at_limit, ""));
  CHECK_THROWS_WITH_AS(bind({{x, view(at_x, bf16, 6)}, {y, view(at_y, bf16, 6)}}),
                       "scale: tensor 'limit' is not given, and these types and choices need it", Error);
  binding.problem.selections[1] = 0;
  CHECK_THROWS_WITH_AS(bind({{x, view(at_x, bf16, 6)}, {limit, {at_limit, f32, {6, 2}, 0}}, {y, view(at_y, bf16, 6)}}),
                       "scale: tensor 'limit' is given, and the op has it only where mode == \"saturate\"", Error);
  CHECK(bind({{x, view(at_x, bf16, 6)}, {y, view(at_y, bf16, 6)}}) ==
        text("rows=6 cols=64 dtype=bf16 mode=plain", nullptr, nullptr, ""));
}
