// A pass of random expressions over two axes and two run-time integers, of which a launch form is made.
#pragma once

#include <rapidcheck.h>

#include <limits>
#include <string>
#include <vector>

#include "jit/launch_form.hpp"

namespace kiln::jit::testing {

using manifest::Expression;
using manifest::Range;
using manifest::RuntimeType;

inline constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

/// Two axes, m and n, then two run-time integers, s and t.
inline manifest::Symbols symbols() {
  manifest::Symbols result;
  for (const char* name : {"m", "n", "s", "t"}) result.add(name);
  return result;
}
inline constexpr std::size_t axes = 2;

/// One tensor's address with s and t behind it, past slots for eight axes.
inline FrameLayout layout_with_view() {
  FrameLayout layout;
  layout.axes = axes;
  layout.values = {9, 10};
  layout.tensors = {8, 11};
  layout.slots = 12;
  return layout;
}

inline const std::vector<std::string> sizes = {"m",
                                               "n",
                                               "1",
                                               "ceil_div(m, 64)",
                                               "ceil_div(m, 48) * ceil_div(n, 32)",
                                               "min(ceil_div(m, 8), 65535)",
                                               "min(m, n)",
                                               "m * n",
                                               "m - 600",
                                               "n / (m - 700)",
                                               "m > n ? m : n",
                                               "(m + n) % 17",
                                               "s * 2",
                                               "t"};
inline const std::vector<std::string> conditions = {
    "s % 8 == 0", "s * 2 % 16 == 0 && t * 2 % 16 == 0", "s % 8 == 0 && t % 16 == 0", "pow2_ceil(m) <= 1024 || s == 1",
    "m <= 900",   "t >= n && (m < 800 || s > t)",       "s / (t - 4096) < 100",      "n % 8 == 0",
    "m * 0 == 1"};

inline bool is_view(const LoadedArgument& argument) {
  return argument.kind == manifest::ArgumentKind::view || argument.kind == manifest::ArgumentKind::workspace_view;
}

struct Case {
  FrameLayout layout = declared_layout(axes, 2);
  std::vector<Range> any = {{1, 1 << 20}, {4096, 4096}}, bucket = {{513, 1024}, {4096, 4096}};
  std::vector<manifest::Runtime> runtime;
  std::vector<Expression> constraints;
  LoadedPass pass;

  static Case random() {
    Case drawn;
    drawn.draw();
    return drawn;
  }

  [[nodiscard]] Expression parse(const char* text) const {
    return Expression::parse(text, symbols()).renumbered(layout.of_declared(2));
  }

 private:
  [[nodiscard]] Expression random_expression(const std::vector<std::string>& texts) const {
    return parse((*rc::gen::elementOf(texts)).c_str());
  }
  void draw() {
    if (*rc::gen::arbitrary<bool>()) layout = layout_with_view();
    for (const char* name : {"s", "t"}) {
      manifest::Runtime each;
      each.name = name;
      each.type = *rc::gen::element(RuntimeType::i32, RuntimeType::i64, RuntimeType::u32, RuntimeType::u64);
      const bool first = runtime.empty();
      if (*rc::gen::inRange(0, 4) > 0)
        each.default_integer =
            random_expression(first ? std::vector<std::string>{"n", "m", "m * n", "-1"}
                                    : std::vector<std::string>{"n", "s", "m + s", "m * s", "4096 / (m - 513)"});
      if (*rc::gen::arbitrary<bool>())
        each.minimum = random_expression(first ? std::vector<std::string>{"n", "m", "1"}
                                               : std::vector<std::string>{"n", "s", "m", "2"});
      if (*rc::gen::inRange(0, 3) == 0)
        each.maximum = random_expression(first ? std::vector<std::string>{"n", "m * n", "4096"}
                                               : std::vector<std::string>{"s", "2 * n", "m * s", "1048576"});
      runtime.push_back(each);
    }
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) constraints.push_back(random_expression(conditions));
    for (Expression& each : pass.grid) each = random_expression(sizes);
    pass.kernel = "kernel";
    for (int i = *rc::gen::inRange(0, 6); i > 0; --i) pass.arguments.push_back(random_argument());
  }

  [[nodiscard]] LoadedArgument random_argument() const {
    if (*rc::gen::inRange(0, 6) > 0) return random_word();
    LoadedArgument pack;
    pack.kind = manifest::ArgumentKind::pack;
    while (pack.members.empty() || *rc::gen::inRange(0, 4) > 0) {
      LoadedArgument member = random_word();
      if (member.kind != manifest::ArgumentKind::length && member.kind != manifest::ArgumentKind::report)
        pack.members.push_back(std::move(member));
    }
    return pack;
  }
  [[nodiscard]] LoadedArgument random_word() const {
    LoadedArgument argument;
    argument.kind = *rc::gen::element(manifest::ArgumentKind::tensor, manifest::ArgumentKind::view,
                                      manifest::ArgumentKind::workspace_view, manifest::ArgumentKind::axis,
                                      manifest::ArgumentKind::runtime, manifest::ArgumentKind::workspace,
                                      manifest::ArgumentKind::zeroed_workspace, manifest::ArgumentKind::expression,
                                      manifest::ArgumentKind::length, manifest::ArgumentKind::report);
    argument.index = *rc::gen::inRange(0, 2);
    if (argument.kind == manifest::ArgumentKind::runtime)
      argument.index = layout.values[static_cast<std::size_t>(argument.index)];
    argument.offset = 256 * *rc::gen::inRange(0, 4);
    argument.value = random_expression(sizes);
    argument.limits.lowest = *rc::gen::element<std::int64_t>(0, -most - 1);
    argument.limits.highest = *rc::gen::element<std::int64_t>(2147483647, most);
    argument.zeroed = *rc::gen::arbitrary<bool>();
    if (!is_view(argument)) return argument;
    if (*rc::gen::arbitrary<bool>())
      argument.strides = {parse("s"), parse("t")};
    else
      for (int i = *rc::gen::inRange(0, 5); i > 0; --i) argument.strides.push_back(random_expression(sizes));
    argument.absent = *rc::gen::inRange(0, 4) == 0;
    return argument;
  }

 public:
  /// The arguments, with the members of packs in their place.
  [[nodiscard]] std::vector<LoadedArgument> words() const {
    std::vector<LoadedArgument> result;
    for (const LoadedArgument& each : pass.arguments)
      if (each.kind == manifest::ArgumentKind::pack)
        result.insert(result.end(), each.members.begin(), each.members.end());
      else
        result.push_back(each);
    return result;
  }
  [[nodiscard]] bool reads(int slot) const {
    const auto uses = [&](const auto& expressions) {
      return std::any_of(expressions.begin(), expressions.end(),
                         [&](const Expression& each) { return each.uses(slot); });
    };
    return uses(constraints) || uses(pass.grid) || std::ranges::any_of(words(), [&](const LoadedArgument& each) {
             return (each.kind == manifest::ArgumentKind::runtime && each.index == slot) ||
                    (each.kind == manifest::ArgumentKind::expression && each.value.uses(slot)) ||
                    (!each.absent && uses(each.strides));
           });
  }
  [[nodiscard]] LaunchForm form() const {
    std::vector<Range> all = any, in_bucket = bucket;
    all.resize(layout.slots);
    in_bucket.resize(layout.slots);
    return make_launch_form({layout, all, in_bucket, runtime, constraints, {&pass, 1}});
  }
};

}  // namespace kiln::jit::testing
