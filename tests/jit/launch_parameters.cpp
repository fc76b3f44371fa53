// Which value reaches which parameter of a kernel, whatever an op's number of axes, values, tensors and passes.
#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/parameter_at.hpp"

using namespace kiln;
using namespace kiln::jit;
using testing::at;

TEST_CASE("a call's frame holds every size, every run-time value and every tensor, many or few") {
  struct Count {
    std::size_t axes, values, tensors;
  };
  for (const Count& each :
       {Count{1, 1, 1}, Count{1, 8, 8}, Count{1, 9, 8}, Count{8, 7, 9}, Count{9, 3, 2}, Count{12, 32, 24}}) {
    const std::size_t axes = each.axes, count = each.values, tensors = each.tensors;
    CAPTURE(axes);
    CAPTURE(count);
    std::vector<manifest::Range> ranges(axes, {1, 64});
    const FrameLayout layout = declared_layout(axes, count);
    ranges.resize(layout.slots);
    std::vector<manifest::Runtime> runtime(count);
    LoadedPass pass;
    pass.grid = {manifest::Expression::constant(1), manifest::Expression::constant(1),
                 manifest::Expression::constant(1)};
    Arguments arguments;
    for (std::size_t i = 0; i < count; ++i) {
      runtime[i].type = manifest::RuntimeType::i64;
      runtime[i].default_integer = manifest::Expression::constant(static_cast<std::int64_t>(100 + i));
      LoadedArgument& argument = pass.arguments.emplace_back();
      argument.kind = manifest::ArgumentKind::runtime;
      argument.index = static_cast<int>(axes + i);
    }
    for (std::size_t i = 0; i < tensors; ++i) {
      pass.arguments.emplace_back().index = static_cast<int>(i);
      arguments.tensors[i] = reinterpret_cast<const void*>(4096 * (i + 1));
    }
    const LaunchForm form = make_launch_form({layout, ranges, ranges, runtime, {}, {&pass, 1}});
    arguments.set(RuntimeId{static_cast<std::uint8_t>(count - 1), RuntimeId::Kind::integer}, 7);
    Problem problem;
    for (std::size_t i = 0; i < axes; ++i) problem.axes[i] = static_cast<std::int64_t>(3 + i);
    CallFrame frame;
    REQUIRE(form.fill(frame, problem, arguments));
    PassCall call;
    form.passes[0].link(frame, call);
    REQUIRE(form.passes[0].arrange({frame, arguments, nullptr, 0, 0}, call));
    for (std::size_t i = 0; i < axes; ++i) CHECK(frame.slots[i] == problem.axes[i]);
    for (std::size_t i = 0; i < count; ++i) CHECK(at<std::size_t>(call.parameters[i]) == (i + 1 < count ? 100 + i : 7));
    for (std::size_t i = 0; i < tensors; ++i)
      CHECK(at<const void*>(call.parameters[count + i]) == arguments.tensors[i]);
  }
}

TEST_CASE(
    "every pass finds its own constants at each launch, whether all passes' have room in the frame at once or not") {
  for (const std::size_t count : {5, 40}) {
    CAPTURE(count);
    const std::vector<manifest::Range> ranges = {{1, 64}};
    manifest::Symbols size_m;
    size_m.add("m");
    std::vector<LoadedPass> passes(3);
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      passes[pass].grid = {manifest::Expression::constant(1), manifest::Expression::constant(1),
                           manifest::Expression::constant(1)};
      passes[pass].arguments.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        passes[pass].arguments[i].kind = manifest::ArgumentKind::expression;
        passes[pass].arguments[i].value =
            i == 0 ? manifest::Expression::parse("m * 1000", size_m)
                   : manifest::Expression::constant(static_cast<std::int64_t>(100 * pass + i));
        passes[pass].arguments[i].limits.highest = std::numeric_limits<std::int64_t>::max();
      }
    }
    const LaunchForm form = make_launch_form({declared_layout(1, 0), ranges, ranges, {}, {}, passes});
    CallFrame frame;
    std::vector<PassCall> calls(passes.size());
    for (std::size_t pass = 0; pass < passes.size(); ++pass) form.passes[pass].link(frame, calls[pass]);
    for (const std::int64_t m : {3, 7}) {
      Problem problem;
      problem.axes[0] = m;
      REQUIRE(form.fill(frame, problem, {}));
      for (std::size_t pass = 0; pass < passes.size(); ++pass) {
        REQUIRE(form.passes[pass].arrange({frame, {}, nullptr, 0, 0}, calls[pass]));
        CHECK(at<std::int64_t>(calls[pass].parameters[0]) == 1000 * m);
        for (std::size_t i = 1; i < count; ++i) CHECK(at<std::size_t>(calls[pass].parameters[i]) == 100 * pass + i);
      }
    }
  }
}

TEST_CASE("the length of every axis reaches the kernel that takes it") {
  LoadedPass pass;
  pass.grid = {manifest::Expression::constant(1), manifest::Expression::constant(1), manifest::Expression::constant(1)};
  const std::vector<manifest::Range> ranges(max_axes, {1, 64});
  Problem problem;
  Arguments arguments;
  std::array<std::int32_t, max_axes> lengths{};
  for (std::uint8_t axis = 0; axis < max_axes; ++axis) {
    LoadedArgument& argument = pass.arguments.emplace_back();
    argument.kind = manifest::ArgumentKind::length;
    argument.index = axis;
    problem.axes[axis] = 10 + axis;
    arguments.set(AxisId{axis}, &lengths[axis]);
  }
  const LaunchForm form = make_launch_form({declared_layout(max_axes, 0), ranges, ranges, {}, {}, {&pass, 1}});
  CallFrame frame;
  REQUIRE(form.fill(frame, problem, arguments));
  PassCall call;
  form.passes[0].link(frame, call);
  REQUIRE(form.passes[0].arrange({frame, arguments, nullptr, 0, 0}, call));
  for (std::size_t axis = 0; axis < max_axes; ++axis) {
    const auto length = at<AxisLength>(call.parameters[axis]);
    CHECK(length.on_device == &lengths[axis]);
    CHECK(length.bound == problem.axes[axis]);
  }
}
