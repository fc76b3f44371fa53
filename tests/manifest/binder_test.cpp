// A problem and its arguments, read from tensors, and what is refused of them.
#include "manifest/binder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/describe.hpp"
#include "manifest/overlap.hpp"
#include "manifest/problem.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

constexpr int device = 0;

const void* at(std::uint64_t address) { return reinterpret_cast<const void*>(address); }
constexpr std::uint64_t low = 0x10000000, high = 0x20000000;

/// The op `scale` of the fixture: x [rows, cols] with a stride, y [rows, cols] dense.
struct Scale {
  Op op = testing::scale_folder().parse();
  DeviceFacts facts = testing::h200();
  Binder binder{op, facts};
  static constexpr TensorId x{0}, y{1};
  static kiln::Tensor plain_x() { return {at(low), DType::f32, {5, 64}}; }
  static kiln::Tensor plain_y() { return {at(high), DType::f32, {5, 64}}; }

  [[nodiscard]] Binding bind(const std::vector<Operand>& operands, const std::vector<Setting>& settings = {}) const {
    const PartOfProblem part = make_part(op, settings);
    Binding binding{part.problem, {}, part.axes, part.selections, 0};
    binder.bind(binding, operands, device);
    return binding;
  }
  [[nodiscard]] std::string refusal(const std::vector<Operand>& operands,
                                    const std::vector<Setting>& settings = {}) const {
    try {
      (void)bind(operands, settings);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::bad_input);
      return error.what();
    }
    return "accepted";
  }
};

}  // namespace

TEST_CASE("tensors give sizes, types, addresses and those strides that are no defaults") {
  const Scale scale;
  const Binding dense = scale.bind({{scale.x, scale.plain_x()}, {scale.y, scale.plain_y()}});
  CHECK(to_string(scale.op, dense.problem) == "rows=5 cols=64 dtype=f32 mode=plain");
  CHECK(dense.arguments.tensors[0] == at(low));
  CHECK(dense.arguments.tensors[1] == at(high));
  CHECK(dense.arguments.runtime_set == 0);

  const Binding padded =
      scale.bind({{scale.x, {at(low), DType::bf16, {5, 64}, {96, 1}}}, {scale.y, {at(high), DType::bf16, {5, 64}}}},
                 {{"mode", "saturate"}});
  CHECK(to_string(scale.op, padded.problem) == "rows=5 cols=64 dtype=bf16 mode=saturate");
  CHECK(padded.arguments.runtime_set == 2);
  CHECK(padded.arguments.runtime[1] == 96);
}

TEST_CASE("a binding that is filled again forgets the tensors before") {
  const Scale scale;
  Binding binding =
      scale.bind({{scale.x, {at(low), DType::bf16, {5, 64}, {96, 1}}}, {scale.y, {at(high), DType::bf16, {5, 64}}}});
  scale.binder.bind(binding, std::vector<Operand>{{scale.y, scale.plain_y()}, {scale.x, scale.plain_x()}}, device);
  CHECK(to_string(scale.op, binding.problem) == "rows=5 cols=64 dtype=f32 mode=plain");
  CHECK(binding.arguments.runtime_set == 0);
}

TEST_CASE("the stride of a single row says nothing") {
  const Scale scale;
  const Binding one = scale.bind(
      {{scale.x, {at(low), DType::f32, {1, 64}, {7, 1}}}, {scale.y, {at(high), DType::f32, {1, 64}, {9, 1}}}});
  CHECK(one.arguments.runtime_set == 0);
}

TEST_CASE("tensors without elements may be null") {
  const Scale scale;
  const Binding none =
      scale.bind({{scale.x, {nullptr, DType::f32, {0, 64}}}, {scale.y, {nullptr, DType::f32, {0, 64}}}});
  CHECK(is_empty(scale.op, none.problem));
}

TEST_CASE("the strides of tensors without elements say nothing") {
  const Scale scale;  // an expanded gradient of an empty batch has strides of 0
  const Binding none = scale.bind(
      {{scale.x, {nullptr, DType::f32, {0, 64}, {0, 0}}}, {scale.y, {nullptr, DType::f32, {0, 64}, {7, 9}}}});
  CHECK(is_empty(scale.op, none.problem));
  CHECK(none.arguments.runtime_set == 0);
}

TEST_CASE("what tensors get wrong is refused by name") {
  const Scale scale;
  const kiln::Tensor x = scale.plain_x(), y = scale.plain_y();
  const auto with = [](kiln::Tensor view, auto change) {
    change(view);
    return view;
  };
  const auto both = [&](const kiln::Tensor& first, const kiln::Tensor& second) {
    return scale.refusal({{scale.x, first}, {scale.y, second}});
  };
  const std::pair<std::string, const char*> cases[] = {
      {scale.refusal({{scale.x, x}}), "scale: tensor 'y' is not given, and these types and choices need it"},
      {scale.refusal({{scale.x, x}, {scale.x, x}}), "scale: tensor 'x' is given twice, expected it once"},
      {scale.refusal({{TensorId{7}, x}}), "scale: a tensor of another op is given; take it from this op's Op::tensor"},
      {both(x, {at(high), DType::f32, {64}}), "scale: tensor 'y' has 1 dimension, expected 2: [rows, cols]"},
      {both(x, {at(high), DType::f32, {4, 64}}),
       "scale: tensor 'y' of shape [rows, cols] has 4 in dimension 0, expected rows = 5 as in 'x'"},
      {scale.refusal({{scale.x, x}, {scale.y, y}}, {{"rows", "6"}}),
       "scale: tensor 'x' of shape [rows, cols] has 5 in dimension 0, expected rows = 6 as given"},
      {both({at(low), DType::f32, {-1, 64}, {64, 1}}, y),
       "scale: tensor 'x' of shape [rows, cols] has -1 in dimension 0, expected 0 or more"},
      {both(x, {at(high), DType::bf16, {5, 64}}),
       "scale: tensor 'y' is bf16, expected dtype = f32, as another tensor is"},
      {scale.refusal({{scale.x, x}, {scale.y, y}}, {{"dtype", "bf16"}}),
       "scale: tensor 'x' is f32, expected dtype = bf16, as was given"},
      {both({at(low), DType::f16, {5, 64}}, y), "scale: tensor 'x' is f16, expected 'bf16' or 'f32'"},
      {both({at(low), static_cast<DType>(77), {5, 64}}, y), "scale: tensor 'x' is unknown, expected 'bf16' or 'f32'"},
      {both({at(low), DType::f32, {5, 64}, {64, 2}}, y), "scale: tensor 'x' has stride 2 in dimension 1, expected 1"},
      {both({at(low), DType::f32, {5, 64}, {32, 1}}, y),
       "scale: tensor 'x' has stride 32 in dimension 0, expected 64 or more"},
      {both(x, {at(high), DType::f32, {5, 64}, {96, 1}}),
       "scale: tensor 'y' has stride 96 in dimension 0, expected (cols)"},
      {both(with(x, [](kiln::Tensor& view) { view.address = nullptr; }), y),
       "scale: tensor 'x' has the address null, expected device memory"},
      {both(with(x, [](kiln::Tensor& view) { view.address = at(low + 2); }), y),
       "scale: tensor 'x' lies at 0x10000002, expected a multiple of its element's 4 bytes"},
      {both(with(x, [](kiln::Tensor& view) { view.device = 1; }), y),
       "scale: tensor 'x' lies on device 1, expected memory of device 0"},
      {both({at(low), DType::f32, {5, 64}, 65536}, y),
       "scale: tensor 'x' lies on device 32767, expected memory of device 0"},
      {both(with(x, [](kiln::Tensor& view) { view.device = kiln::Tensor::host; }), y),
       "scale: tensor 'x' lies in host memory, expected memory of device 0"},
      {both(x, with(y, [](kiln::Tensor& view) { view.address = at(low + 64 * 4); })),
       "scale: output 'y' and input 'x' share memory, and are not the same elements"},
      {both(x, with(y, [](kiln::Tensor& view) { view.device = 0, view.address = at(low); })), "accepted"},
      {both({at(low), DType::f32, {5, 64}, {96, 1}}, with(y, [](kiln::Tensor& view) { view.address = at(low); })),
       "scale: output 'y' and input 'x' share memory, and are not the same elements"},
      {both({at(low), DType::f32, {1, 64}, {96, 1}}, {at(low), DType::f32, {1, 64}}), "accepted"},
      {both({at(low), DType::f32, {5, 64}, {std::numeric_limits<std::int64_t>::max(), 1}}, y),
       "scale: tensor 'x' ends past what 64 bits can address, by its sizes [5, 64] and strides [9223372036854775807, "
       "1]"},
      {both({at(low), DType::f32, {5, 64}, {std::int64_t{1} << 60, 1}}, y),
       "scale: tensor 'x' ends past what 64 bits can address, by its sizes [5, 64] and strides [1152921504606846976, "
       "1]"},
      {both({at(low), DType::f32, {5, 64}, {std::int64_t{1} << 58, 1}}, y), "accepted"},
  };
  for (const auto& [said, expected] : cases) CHECK(said == expected);
}

TEST_CASE("a binding and a tensor's problem of another op are refused") {
  const Scale scale;
  Binding other;
  other.problem.op = scale.op.tag + 1;
  CHECK_THROWS_WITH_AS(
      scale.binder.bind(other, std::vector<Operand>{{scale.x, scale.plain_x()}, {scale.y, scale.plain_y()}}, device),
      "scale: the binding is another op's; make it by this op's Op::binding", Error);
}

TEST_CASE("a binding with a choice that the op does not have is refused") {
  const Scale scale;
  const PartOfProblem part = make_part(scale.op, std::vector<Setting>{{"dtype", "f32"}});
  for (const int number : {2, 4, 255}) {
    Binding binding{part.problem, {}, part.axes, part.selections, 0};
    binding.problem.selections[0] = static_cast<std::uint8_t>(number);
    CHECK_THROWS_WITH_AS(
        scale.binder.bind(binding, std::vector<Operand>{{scale.x, scale.plain_x()}, {scale.y, scale.plain_y()}},
                          device),
        doctest::Contains(("choice number 0 of the binding is number " + std::to_string(number)).c_str()), Error);
  }
}

TEST_CASE("a binding without tensors, or with tensors that were refused, has no sizes that a launch would take") {
  const Scale scale;
  const auto refused = [&](const Binding& binding) {
    CHECK_THROWS_WITH_AS(check_problem(scale.op, binding.problem, Zeros::taken),
                         "op 'scale': axis 'rows' has no size: Op::bind was not called on the binding, or refused its "
                         "tensors",
                         Error);
  };
  Binding binding{make_part(scale.op, std::vector<Setting>{{"cols", "64"}}).problem, {}, 2, 0, 0};
  CHECK(binding.problem.axes[1] == 64);
  refused(binding);
  const std::vector<Operand> right = {{scale.x, scale.plain_x()}, {scale.y, scale.plain_y()}};
  scale.binder.bind(binding, right, device);
  CHECK_NOTHROW(check_problem(scale.op, binding.problem));
  std::vector<Operand> wrong = right;
  wrong[1].view.address = nullptr;
  CHECK_THROWS_AS(scale.binder.bind(binding, wrong, device), Error);
  CHECK(binding.problem.axes[1] == 64);
  refused(binding);
  scale.binder.bind(binding, right, device);
  CHECK_NOTHROW(check_problem(scale.op, binding.problem));
}

TEST_CASE("views share memory where two elements do, as far as strides tell") {
  const kiln::Tensor rows{at(low), DType::f32, {4, 8}};
  CHECK_FALSE(overlaps_itself(rows));
  CHECK_FALSE(overlaps_itself({at(low), DType::f32, {4, 8}, {1, 4}}));
  CHECK_FALSE(overlaps_itself({at(low), DType::f32, {1, 8}, {0, 1}}));
  CHECK(overlaps_itself({at(low), DType::f32, {4, 8}, {0, 1}}));
  CHECK(overlaps_itself({at(low), DType::f32, {4, 8}, {7, 1}}));
  CHECK(overlaps_itself({at(low), DType::f32, {4, 8}, {1, 1}}));
  const auto shifted = [](std::uint64_t bytes) { return kiln::Tensor{at(low + bytes), DType::f32, {4, 8}}; };
  CHECK(overlap(rows, shifted(0)));
  CHECK(overlap(rows, shifted(124)));
  CHECK_FALSE(overlap(rows, shifted(128)));
  CHECK_FALSE(overlap(shifted(128), rows));
  CHECK_FALSE(overlap_in_part(rows, shifted(0)));
  CHECK(overlap_in_part(rows, shifted(4)));
  CHECK(overlap_in_part(rows, {at(low), DType::bf16, {4, 8}}));
  CHECK(overlap_in_part(rows, {at(low), DType::f32, {4, 8}, {16, 1}}));
  CHECK(overlap_in_part(rows, {at(low), DType::f32, {8, 4}}));
  CHECK(overlap_in_part(rows, {at(low), DType::f32, {8}}));
  CHECK_FALSE(overlap_in_part(rows, {at(low), DType::f32, {1, 4, 1, 8}, {7, 8, 9, 1}}));
  CHECK_FALSE(extent_of({at(low), DType::f32, {2, 8}, {std::int64_t{1} << 62, 1}}));
  CHECK_FALSE(extent_of({at(low), DType::f32, {2, 8}, {-1, 1}}));
  CHECK(extent_of({at(low), DType::f32, {1, 8}, {-1, 1}})->end == low + 32);
  // Columns of one buffer lie between each other.
  const kiln::Tensor left{at(low), DType::f32, {4, 8}, {16, 1}}, right{at(low + 32), DType::f32, {4, 8}, {16, 1}};
  CHECK_FALSE(overlap(left, right));
  // As many elements as lie between its ends, of which some share memory: there are gaps.
  const kiln::Tensor repeated{at(low), DType::f32, {2, 2, 8}, {0, 24, 1}}, steps{at(low), DType::f32, {3, 3}, {2, 2}};
  CHECK_FALSE(overlap(repeated, {at(low + 32), DType::f32, {2, 8}, {8, 1}}));
  CHECK_FALSE(overlap(steps, {at(low + 4), DType::f32, {4}, {2}}));
  CHECK_FALSE(overlap({at(low), DType::f32, {3, 3, 4}, {9, 7, 1}}, {at(low + 16), DType::f32, {2}}));
  CHECK(overlap({at(low), DType::f32, {2, 4, 8}, {0, 8, 1}}, {at(low + 64), DType::f32, {2, 8}}));
}

TEST_CASE("an output over an input of a shape that is equal by chance is refused") {
  const Op gemm = [] {
    for (Op& op : load_ops({}))
      if (op.name == "gemm") return std::move(op);
    FAIL("there is no gemm");
    std::abort();
  }();
  const DeviceFacts facts = testing::h200();
  const Binder binder(gemm, facts);
  const auto tensor = [&](const char* name, std::uint64_t address) {
    const auto found = std::find_if(gemm.tensors.begin(), gemm.tensors.end(),
                                    [&](const manifest::Tensor& each) { return each.name == name; });
    return Operand{TensorId{static_cast<std::uint8_t>(found - gemm.tensors.begin())},
                   {at(address), DType::f32, {96, 96}}};
  };
  const auto said = [&](std::uint64_t y, const char* residual) -> std::string {
    const PartOfProblem part = make_part(gemm, std::vector<Setting>{{"layout", "nt"}, {"residual", residual}});
    Binding binding{part.problem, {}, part.axes, part.selections, 0};
    std::vector<Operand> operands = {tensor("x", low), tensor("w", low + 0x100000), tensor("y", y)};
    if (std::string_view(residual) == "add") operands.push_back(tensor("residual_in", low + 0x200000));
    try {
      binder.bind(binding, operands, device);
      binder.bind(binding, operands, device);  // by the combination's program, if it takes them
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(said(high, "none") == "accepted");
  CHECK(said(low, "none").find("output 'y' of shape [m, ") != std::string::npos);
  CHECK(said(low, "none").find("share memory; an op works in place only where its manifest gives both one shape") !=
        std::string::npos);
  CHECK(said(low + 0x100000, "none").find("and input 'w' of shape [") != std::string::npos);
  CHECK(said(low + 0x200000, "add") == "accepted");
}

TEST_CASE("the tensors that each built-in op describes at a problem give this problem back") {
  const DeviceFacts facts = testing::h200();
  std::size_t bound = 0;
  for (const Op& op : load_ops({})) {
    const Binder binder(op, facts);
    Problem problem;
    for (std::size_t i = 0; i < op.axes.size(); ++i)
      problem.axes[i] =
          std::clamp(op.axes[i].multiple_of * (std::int64_t{8} << (i % 3)), op.axes[i].minimum, op.axes[i].maximum);
    std::vector<Problem> problems = {problem};
    for (std::size_t i = 0; i < op.selections.size(); ++i)
      for (std::size_t value = 0; value < op.selections[i].values.size(); ++value) {
        problems.push_back(problem);
        problems.back().selections[i] = static_cast<std::uint8_t>(value);
      }
    for (const Problem& each : problems) {
      if (!is_allowed(op, each)) continue;
      CAPTURE(op.name + " " + to_string(op, each));
      const OpDescription described = describe({op, facts}, each);
      Binding binding;
      binding.problem = each;
      std::vector<Operand> operands;
      std::uint64_t address = low;
      std::uint32_t shown = 0;
      for (const TensorDescription& tensor : described.tensors) {
        if (!tensor.present) continue;
        kiln::Tensor view;
        view.address = at(address);
        address += static_cast<std::uint64_t>(tensor.bytes + 511) / 512 * 512;
        view.type = *tensor.element;
        view.rank = static_cast<std::uint8_t>(tensor.sizes.size());
        std::copy(tensor.sizes.begin(), tensor.sizes.end(), view.sizes.begin());
        std::copy(tensor.default_strides.begin(), tensor.default_strides.end(), view.strides.begin());
        operands.push_back({tensor.id, view});
        for (const std::string& size : tensor.shape)
          for (std::size_t axis = 0; axis < op.axes.size(); ++axis)
            if (size == op.axes[axis].name) shown |= 1U << axis;
      }
      for (std::size_t i = 0; i < op.axes.size(); ++i)
        if ((shown >> i & 1U) == 0) binding.axes_given |= 1U << i;
      for (std::size_t i = 0; i < op.selections.size(); ++i) binding.selections_given |= 1U << i;
      for (std::size_t i = 0; i < op.axes.size(); ++i)
        if ((shown >> i & 1U) != 0) binding.problem.axes[i] = 0;
      binder.bind(binding, operands, device);
      CHECK(to_string(op, binding.problem) == to_string(op, each));
      CHECK(binding.arguments.runtime_set == 0);
      ++bound;
    }
  }
  CHECK(bound > 100);
}
