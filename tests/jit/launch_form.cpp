// Compares what a launch computes from its form with the manifest's expressions.
#include "jit/launch_form.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "jit/launch_form_case.hpp"
#include "jit/parameter_at.hpp"

using namespace kiln;
using namespace kiln::jit;
using manifest::Expression;
using manifest::Range;
using manifest::RuntimeType;
using namespace kiln::jit::testing;

namespace {

bool fits(RuntimeType type, std::int64_t value) {
  switch (type) {
    case RuntimeType::i32: return value == static_cast<std::int32_t>(value);
    case RuntimeType::u32: return value >= 0 && value <= 4294967295;
    case RuntimeType::u64: return value >= 0;
    default: return true;
  }
}

/// The frame as the manifest's expressions give it, or nothing.
/// A default that nothing reads is not computed.
std::optional<CallFrame> frame_of(const Case& given, const LaunchForm& form, const Problem& problem,
                                  const Arguments& arguments) {
  CallFrame frame{};
  for (std::size_t i = 0; i < axes; ++i) frame.slots[i] = problem.axes[i];
  for (std::size_t i = 0; i < given.runtime.size(); ++i) {
    const manifest::Runtime& each = given.runtime[i];
    std::int64_t& slot = frame.slots[given.layout.values[i]];
    if ((arguments.runtime_set >> i & 1U) != 0) {
      slot = arguments.runtime[i];
    } else {
      if (!each.default_integer) return std::nullopt;
      if (!form.runtime[i].is_read) {
        RC_ASSERT(!given.reads(given.layout.values[i]));
        continue;
      }
      const manifest::Value value = each.default_integer->evaluate(frame.view());
      if (!value.ok()) return std::nullopt;
      slot = value.number;
    }
    if (!fits(each.type, slot)) return std::nullopt;
    const auto bound = [&](const std::optional<Expression>& of, std::int64_t none) -> std::optional<std::int64_t> {
      if (!of) return none;
      const manifest::Value value = of->evaluate(frame.view());
      return value.ok() ? std::optional(value.number) : std::nullopt;
    };
    const auto least = bound(each.minimum, slot), largest = bound(each.maximum, slot);
    if (!least || !largest || slot < *least || slot > *largest) return std::nullopt;
  }
  return frame;
}

bool is_size(const manifest::Value& value, std::int64_t largest) {
  return value.ok() && value.number >= 1 && value.number <= largest;
}

bool can_launch(const Case& given, const CallFrame& frame) {
  const LoadedPass& pass = given.pass;
  for (const LoadedArgument& each : given.words()) {
    if (is_view(each) && !each.absent)
      for (const Expression& stride : each.strides)
        if (!stride.evaluate(frame.view()).ok()) return false;
    if (each.kind != manifest::ArgumentKind::expression) continue;
    const manifest::Value value = each.value.evaluate(frame.view());
    if (!value.ok() || value.number < each.limits.lowest || value.number > each.limits.highest) return false;
  }
  return is_size(pass.grid[0].evaluate(frame.view()), most_grid_x) &&
         is_size(pass.grid[1].evaluate(frame.view()), most_grid_yz) &&
         is_size(pass.grid[2].evaluate(frame.view()), most_grid_yz);
}

void check_argument(const LoadedArgument& argument, const LaunchInput& input, const void* parameter) {
  const auto index = static_cast<std::size_t>(argument.index);
  switch (argument.kind) {
    case manifest::ArgumentKind::tensor:
      RC_ASSERT(at<std::uintptr_t>(parameter) == reinterpret_cast<std::uintptr_t>(input.arguments.tensors[index]));
      break;
    case manifest::ArgumentKind::view:
    case manifest::ArgumentKind::workspace_view: {
      const auto* const words = static_cast<const std::int64_t*>(parameter);
      const CUdeviceptr address = argument.kind == manifest::ArgumentKind::view
                                      ? reinterpret_cast<std::uintptr_t>(input.arguments.tensors[index])
                                      : (argument.zeroed ? input.workspace.zeroed : input.workspace.scratch) +
                                            static_cast<CUdeviceptr>(argument.offset);
      RC_ASSERT(at<CUdeviceptr>(words) == (argument.absent ? 0 : address));
      for (std::size_t i = 0; i < argument.strides.size(); ++i)
        RC_ASSERT(at<std::int64_t>(words + 1 + i) ==
                  (argument.absent ? 0 : argument.strides[i].evaluate(input.frame.view()).number));
      break;
    }
    case manifest::ArgumentKind::axis:
    case manifest::ArgumentKind::runtime: RC_ASSERT(at<std::int64_t>(parameter) == input.frame.slots[index]); break;
    case manifest::ArgumentKind::workspace:
      RC_ASSERT(at<CUdeviceptr>(parameter) == input.workspace.scratch + static_cast<CUdeviceptr>(argument.offset));
      break;
    case manifest::ArgumentKind::zeroed_workspace:
      RC_ASSERT(at<CUdeviceptr>(parameter) == input.workspace.zeroed + static_cast<CUdeviceptr>(argument.offset));
      break;
    case manifest::ArgumentKind::expression:
      RC_ASSERT(at<std::int64_t>(parameter) == argument.value.evaluate(input.frame.view()).number);
      break;
    case manifest::ArgumentKind::length: {
      const auto length = at<AxisLength>(parameter);
      RC_ASSERT(bool(length.on_device == input.arguments.lengths[index]));
      RC_ASSERT(length.report == input.reports + 8 * index);
      RC_ASSERT(length.bound == input.frame.slots[index]);
      break;
    }
    case manifest::ArgumentKind::pack: {
      const auto* word = static_cast<const std::int64_t*>(parameter);
      for (const LoadedArgument& each : argument.members) {
        check_argument(each, input, word);
        word += is_view(each) ? 1 + each.strides.size() : 1;
      }
      break;
    }
    case manifest::ArgumentKind::report: RC_ASSERT(at<CUdeviceptr>(parameter) == input.reports + 8 * index); break;
    default: RC_FAIL("no such argument");
  }
}

}  // namespace

TEST_CASE(
    "a launch form fills, admits and arranges what the manifest's expressions say, and refuses what they refuse") {
  int launched = 0, refused = 0;
  CHECK(rc::check([&] {
    const Case given = Case::random();
    const LaunchForm form = given.form();
    CallFrame frame;  // of all these calls, so that each finds what the one before left
    for (int i = 0; i < 20; ++i) {
      Problem problem;
      const bool inside = *rc::gen::inRange(0, 4) > 0;  // else a plan that stands in for another bucket's
      problem.axes = {inside ? *rc::gen::inRange<std::int64_t>(513, 1025) : *rc::gen::inRange<std::int64_t>(1, 5000),
                      4096};
      Arguments arguments;
      for (std::uint8_t each = 0; each < 2; ++each) {
        arguments.tensors[each] = reinterpret_cast<const void*>(std::uintptr_t{4096} * (each + 1U));
        if (*rc::gen::arbitrary<bool>())
          arguments.set(RuntimeId{each, RuntimeId::Kind::integer},
                        *rc::gen::element<std::int64_t>(4096, 4104, 4097, 0, -1, 1000, 5'000'000'000, most));
      }
      arguments.lengths[1] = reinterpret_cast<const std::int32_t*>(std::uintptr_t{64});

      const auto wanted = frame_of(given, form, problem, arguments);
      RC_ASSERT(form.fill(frame, problem, arguments) == wanted.has_value());
      if (!wanted) continue;
      for (std::size_t axis = 0; axis < axes; ++axis) RC_ASSERT(frame.slots[axis] == wanted->slots[axis]);
      for (std::size_t i = 0; i < given.runtime.size(); ++i)
        if (form.runtime[i].is_read || (arguments.runtime_set >> i & 1U) != 0)
          RC_ASSERT(frame.slots[given.layout.values[i]] == wanted->slots[given.layout.values[i]]);
      RC_ASSERT(form.holds(frame, arguments) ==
                std::all_of(given.constraints.begin(), given.constraints.end(),
                            [&](const Expression& each) { return each.evaluate(frame.view()).truth(); }));

      const LaunchInput input{frame, arguments, nullptr, {1 << 20, 3 << 20}, 1 << 16};
      PassCall call;
      form.passes[0].link(frame, call);
      const bool arranged = form.passes[0].arrange(input, call);
      RC_ASSERT(arranged == can_launch(given, frame));
      ++(arranged ? launched : refused);
      if (!arranged) continue;
      RC_ASSERT(call.config.gridDimX == given.pass.grid[0].evaluate(frame.view()).number);
      RC_ASSERT(call.config.gridDimY == given.pass.grid[1].evaluate(frame.view()).number);
      RC_ASSERT(call.config.gridDimZ == given.pass.grid[2].evaluate(frame.view()).number);
      for (std::size_t argument = 0; argument < given.pass.arguments.size(); ++argument)
        check_argument(given.pass.arguments[argument], input, call.parameters[argument]);
    }
  }));
  CHECK(launched > 50);
  CHECK(refused > 50);
}

TEST_CASE("what a bucket settles is not looked at again at launches") {
  Case given;
  given.runtime.resize(1);
  given.runtime[0].type = RuntimeType::i64;
  given.runtime[0].default_integer = given.runtime[0].minimum = Expression::parse("n", symbols());
  given.constraints = {Expression::parse("pow2_ceil(m) <= 1024 && s * 2 % 16 == 0", symbols())};
  given.pass.grid = {Expression::parse("ceil_div(n, 32)", symbols()), Expression::parse("ceil_div(m, 8)", symbols()),
                     Expression::constant(1)};
  given.pass.arguments.clear();
  const LaunchForm form = given.form();
  CHECK(form.runtime[0].value_holds);
  CHECK(form.constraints.formulas.size() == 1);  // the multiple of 16, when a stride is given
  CHECK(form.constraints_elsewhere.formulas.size() == 2);
  CHECK(form.constraints_at_defaults.empty());  // 4096 is one
  CHECK(form.passes[0].grid.size() == 1);       // rows alone
  CHECK(form.passes[0].config.gridDimX == 128);
}

TEST_CASE("a real that may be 0 may be -0.0") {
  for (const RuntimeType type : {RuntimeType::f32, RuntimeType::f64}) {
    manifest::Runtime declared;
    declared.type = type;
    const auto takes = [&](double value) {
      std::int64_t slot = 0;
      const RuntimeForm form = form_of(declared, {}, Range{}, {});
      return form.fill(true, bits_of(type, value), std::vector<std::int64_t>(1), slot) == Fault::none &&
             slot == bits_of(type, value);
    };
    declared.lower = {0, true};
    CHECK(takes(0.0));
    CHECK(takes(-0.0));
    CHECK(takes(1.0));
    CHECK_FALSE(takes(-1e-30));
    CHECK_FALSE(takes(std::numeric_limits<double>::infinity()));
    CHECK_FALSE(takes(std::numeric_limits<double>::quiet_NaN()));
    declared.upper = {0, true};
    CHECK(takes(-0.0));
    CHECK_FALSE(takes(1.0));
    declared.upper.reset();
    declared.default_real = manifest::RealExpression::parse("-0.0", manifest::Symbols());
    CHECK(form_of(declared, {}, Range{}, {}).value_holds);
    declared.default_real.reset();
    declared.lower = {0, false};
    CHECK_FALSE(takes(0.0));
    CHECK_FALSE(takes(-0.0));
    declared.lower = {1, true};
    CHECK_FALSE(takes(-0.0));
  }
}

TEST_CASE("a default that is a product is not checked against its minimum where its factors' least values suffice") {
  const auto form_of = [](std::optional<const char*> minimum_of_s, const char* minimum) {
    Case given;
    given.runtime.resize(2);
    for (manifest::Runtime& each : given.runtime) each.type = RuntimeType::i64;
    given.runtime[0].default_integer = Expression::parse("n", symbols());
    if (minimum_of_s) given.runtime[0].minimum = Expression::parse(*minimum_of_s, symbols());
    given.runtime[1].default_integer = Expression::parse("m * s", symbols());
    given.runtime[1].minimum = Expression::parse(minimum, symbols());
    given.constraints.clear();
    given.pass.grid = {Expression::constant(1), Expression::constant(1), Expression::constant(1)};
    given.pass.arguments.assign(1, {});
    given.pass.arguments[0].kind = manifest::ArgumentKind::runtime;
    given.pass.arguments[0].index = axes + 1;
    return given.form();
  };
  CHECK(form_of("n", "4096").runtime[1].value_holds);
  CHECK_FALSE(form_of("n", "4097").runtime[1].value_holds);
  CHECK_FALSE(form_of("0", "1").runtime[1].value_holds);
  CHECK_FALSE(form_of("m", "1").runtime[1].value_holds);  // not constant
  CHECK_FALSE(form_of(std::nullopt, "1").runtime[1].value_holds);

  const LaunchForm form = form_of("n", "4096");
  Arguments arguments;
  Problem problem;
  problem.axes[0] = 1 << 20;
  problem.axes[1] = 4096;
  CallFrame frame;
  const auto fill_with = [&](std::int64_t s) {
    arguments.set(RuntimeId{0, RuntimeId::Kind::integer}, s);
    return form.fill(frame, problem, arguments);
  };
  REQUIRE(fill_with(8192));
  CHECK(frame.slots[form.values[1]] == std::int64_t{8192} << 20);
  CHECK_FALSE(fill_with(4095));                   // under its own minimum
  CHECK_FALSE(fill_with(std::int64_t{1} << 50));  // the product has no value
}

TEST_CASE(
    "a default that is a multiple of one size is computed without its expression where its own values are defaults") {
  Case given;
  given.runtime.resize(2);
  for (manifest::Runtime& each : given.runtime) each.type = RuntimeType::i64;
  given.runtime[0].default_integer = given.runtime[0].minimum = Expression::parse("n", symbols());
  given.runtime[1].default_integer = Expression::parse("m * s", symbols());
  given.runtime[1].minimum = Expression::parse("n", symbols());
  given.constraints = {Expression::parse("s % 8 == 0 && t % 16 == 0", symbols())};
  given.pass.grid = {Expression::constant(1), Expression::constant(1), Expression::constant(1)};
  given.pass.arguments.clear();
  const LaunchForm form = given.form();
  REQUIRE(form.linear.size() == 1);
  CHECK(form.linear[0].value == 1);
  CHECK(form.linear[0].times == 4096);
  CHECK(form.linear[0].unless == 3);            // t itself, and s
  CHECK(form.constraints_at_defaults.empty());  // 4096 m is a multiple of 16
  CHECK(form.constraints.masked.size() == 2);

  Problem problem;
  problem.axes = {600, 4096};
  CallFrame frame;
  Arguments arguments;
  REQUIRE(form.fill(frame, problem, arguments));
  CHECK(frame.slots[3] == 600 * 4096);
  CHECK(form.holds(frame, arguments));
  arguments.set(RuntimeId{0, RuntimeId::Kind::integer}, 4104);
  REQUIRE(form.fill(frame, problem, arguments));
  CHECK(frame.slots[3] == 600 * 4104);
  CHECK(form.holds(frame, arguments));
  arguments.set(RuntimeId{1, RuntimeId::Kind::integer}, 4100);
  REQUIRE(form.fill(frame, problem, arguments));
  CHECK_FALSE(form.holds(frame, arguments));
}

TEST_CASE("a default that is a multiple of one that is a size is not checked against a bound of that size") {
  Case given;
  given.runtime.resize(2);
  for (manifest::Runtime& each : given.runtime) each.type = RuntimeType::i64;
  given.runtime[0].default_integer = given.runtime[0].minimum = Expression::parse("m", symbols());
  given.runtime[1].default_integer = Expression::parse("16 * s", symbols());
  given.runtime[1].minimum = Expression::parse("m", symbols());
  given.constraints.clear();
  given.pass.grid = {Expression::parse("s", symbols()), Expression::parse("t", symbols()), Expression::constant(1)};
  given.pass.arguments.clear();
  CHECK(given.form().linear.size() == 2);
  given.runtime[1].minimum = Expression::parse("17 * m", symbols());
  CHECK(given.form().linear.size() == 1);
  given.runtime[1].minimum.reset();
  given.runtime[1].maximum = Expression::parse("m", symbols());
  CHECK(given.form().linear.size() == 1);
}

TEST_CASE("a kernel takes a size of 32 bits where the frame has it") {
  Case given;
  given.runtime.clear();
  given.constraints.clear();
  given.pass.grid = {Expression::constant(1), Expression::constant(1), Expression::constant(1)};
  given.pass.arguments.assign(1, {});
  given.pass.arguments[0].kind = manifest::ArgumentKind::expression;
  given.pass.arguments[0].value = Expression::parse("m", symbols());
  given.pass.arguments[0].limits = range_of(RuntimeType::i32);
  const LaunchForm in_place = given.form();
  CHECK(in_place.passes[0].computed.empty());
  CHECK(in_place.passes[0].offsets[0] == offsetof(CallFrame, slots));
  given.any[0].highest = std::int64_t{1} << 31;  // which its type cannot hold
  CHECK(given.form().passes[0].computed.size() == 1);
}

TEST_CASE("a kernel is given zeros for a descriptor that is not made, and its other arguments in their places") {
  Case given;
  given.pass.grid = {Expression::constant(1), Expression::constant(1), Expression::constant(1)};
  given.pass.arguments.assign(3, {});
  given.pass.arguments[1].kind = manifest::ArgumentKind::tensor_map;
  given.pass.arguments[1].absent = true;
  given.pass.arguments[2].index = 1;
  const LaunchForm form = given.form();
  Arguments arguments;
  for (std::uintptr_t each = 0; each < 2; ++each)
    arguments.tensors[each] = reinterpret_cast<const void*>(4096 * (each + 1));
  Problem problem;
  problem.axes = {600, 4096};
  CallFrame frame;
  REQUIRE(form.fill(frame, problem, arguments));
  PassCall call;
  form.passes[0].link(frame, call);
  REQUIRE(form.passes[0].arrange({frame, arguments, nullptr, 0, 0}, call));
  CHECK(at<const void*>(call.parameters[0]) == arguments.tensors[0]);
  CHECK(at<const void*>(call.parameters[2]) == arguments.tensors[1]);
  const CUtensorMap zeros{};
  CHECK(std::memcmp(call.parameters[1], &zeros, sizeof zeros) == 0);
}

TEST_CASE("a view or pack that lies in the frame is passed without a copy, and any other word by word") {
  Case given;
  given.layout = layout_with_view();
  given.layout.zeros[12] = true;
  given.layout.slots = 13;
  given.runtime.resize(2);
  for (manifest::Runtime& each : given.runtime) {
    each.type = RuntimeType::i64;
    each.default_integer = Expression::constant(4096);
  }
  given.pass.grid = {Expression::constant(1), Expression::constant(1), Expression::constant(1)};
  LoadedArgument view, pack, absent;
  view.kind = absent.kind = manifest::ArgumentKind::view;
  view.strides = {given.parse("s"), given.parse("t")};
  absent.absent = true;
  LoadedArgument other;
  other.index = 1;
  pack.kind = manifest::ArgumentKind::pack;
  pack.members = {view, other, absent};
  given.pass.arguments = {view, pack};
  const auto computed_by = [&] { return given.form().passes[0].computed.size(); };
  CHECK(computed_by() == 0);
  CHECK(given.form().passes[0].offsets[1] == offsetof(CallFrame, slots) + 8 * sizeof(std::int64_t));
  given.pass.arguments[1].members.front().strides = {given.parse("t"), given.parse("s")};
  CHECK(computed_by() == 4);  // the last word is a constant
}
