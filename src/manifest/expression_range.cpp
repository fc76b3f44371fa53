// The range of an expression's value when each slot lies in a range: arithmetic of intervals and of divisors over its
// tree.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>

#include "manifest/expression_arithmetic.hpp"
#include "manifest/expression_tree.hpp"

namespace kiln::manifest {
namespace {

// No range: for some values of the slots the expression has no value, so nothing may be concluded.
using Bounds = std::optional<Range>;

constexpr Range either = {0, 1};

Bounds truth(bool always, bool never) { return always ? Range{1, 1} : never ? Range{0, 0} : either; }

Bounds hull(std::initializer_list<Value> corners) {
  Range result{corners.begin()->number, corners.begin()->number};
  for (const Value& corner : corners) {
    if (!corner.ok()) return std::nullopt;
    result = {std::min(result.lowest, corner.number), std::max(result.highest, corner.number)};
  }
  return result;
}

// The range of an operation that is monotone in each operand. Its extremes are at the corners; it has a value
// everywhere when it has one at each corner.
Bounds monotone(Operation operation, Range a, Range b) {
  return hull({apply(operation, a.lowest, b.lowest), apply(operation, a.lowest, b.highest),
               apply(operation, a.highest, b.lowest), apply(operation, a.highest, b.highest)});
}

/// What divides all values of the range: a number's own magnitude, and 0 of 0, which everything divides.
std::int64_t divisor_of(const Range& range) noexcept {
  if (!range.single() || range.lowest == std::numeric_limits<std::int64_t>::min()) return range.multiple_of;
  return range.lowest < 0 ? -range.lowest : range.lowest;
}

Bounds remainder(Range a, Range b) {
  if (b.lowest <= 0) return std::nullopt;
  if (b.single() && divisor_of(a) % b.lowest == 0) return Range{0, 0};
  if (b.single() && a.lowest / b.lowest == a.highest / b.lowest && (a.lowest >= 0) == (a.highest >= 0))
    return Range{a.lowest % b.lowest, a.highest % b.lowest};
  return Range{a.lowest < 0 ? 1 - b.highest : 0, a.highest > 0 ? b.highest - 1 : 0};
}

Bounds of_one(Operation operation, Range a) {
  switch (operation) {
    case Operation::negate: return hull({apply(operation, a.lowest), apply(operation, a.highest)});
    case Operation::absolute: {
      const Bounds ends = hull({apply(operation, a.lowest), apply(operation, a.highest)});
      if (!ends || a.lowest >= 0 || a.highest <= 0) return ends;
      return Range{0, ends->highest};
    }
    case Operation::logical_not: return truth(a == Range{0, 0}, a.lowest > 0 || a.highest < 0);
    case Operation::is_pow2: return a.single() ? hull({apply(operation, a.lowest)}) : either;
    case Operation::pow2_ceil:
    case Operation::log2: return hull({apply(operation, a.lowest), apply(operation, a.highest)});
    default: return std::nullopt;
  }
}

Bounds of_two(Operation operation, Range a, Range b) {
  switch (operation) {
    case Operation::divide:
      if (b.lowest <= 0 && b.highest >= 0) return std::nullopt;
      return monotone(operation, a, b);
    case Operation::round_up: return b.single() ? monotone(operation, a, b) : std::nullopt;
    case Operation::remainder: return remainder(a, b);
    case Operation::less: return truth(a.highest < b.lowest, a.lowest >= b.highest);
    case Operation::less_equal: return truth(a.highest <= b.lowest, a.lowest > b.highest);
    case Operation::greater: return of_two(Operation::less, b, a);
    case Operation::greater_equal: return of_two(Operation::less_equal, b, a);
    case Operation::equal: return truth(a.single() && a == b, a.highest < b.lowest || b.highest < a.lowest);
    case Operation::not_equal: return truth(a.highest < b.lowest || b.highest < a.lowest, a.single() && a == b);
    default: return monotone(operation, a, b);
  }
}

struct Bounded {
  Tree tree;
  Bounds range;
};

Bounds of_logic(Operation operation, const Bounds& left, const Bounds& right) {
  if (!left) return std::nullopt;
  const bool both = operation == Operation::logical_and;
  const Range a = *of_one(Operation::logical_not, *left);  // {1, 1}: left is 0
  if (a.single() && (a.lowest == 1) == both) return both ? Range{0, 0} : Range{1, 1};
  if (!right) return std::nullopt;
  const Range b = *of_one(Operation::logical_not, *right);
  if (a.single()) return *of_one(Operation::logical_not, b);
  return truth(!both && b == Range{0, 0}, both && b == Range{1, 1});
}

Bounds of_choice(const Bounds& condition, const Bounds& yes, const Bounds& no) {
  if (!condition) return std::nullopt;
  if (*condition == Range{0, 0}) return no;
  if (condition->lowest > 0 || condition->highest < 0) return yes;
  if (!yes || !no) return std::nullopt;
  return Range{std::min(yes->lowest, no->lowest), std::max(yes->highest, no->highest)};
}

/// What divides all values of an operation's result, by what divides its operands.
std::int64_t multiple_of(Operation operation, std::span<const Bounded> parts) {
  const std::int64_t a = divisor_of(*parts.front().range), b = divisor_of(*parts.back().range);
  std::int64_t product = 0;
  switch (operation) {
    case Operation::negate:
    case Operation::absolute: return a;
    case Operation::add:
    case Operation::subtract:
    case Operation::remainder:
    case Operation::minimum:
    case Operation::maximum:
    case Operation::choose: return std::gcd(a, b);
    case Operation::multiply: return __builtin_mul_overflow(a, b, &product) ? std::max(a, b) : product;
    case Operation::round_up: return parts.back().range->single() && a % std::max<std::int64_t>(b, 1) != 0 ? b : a;
    default: return 1;
  }
}

Bounds ends_of(const Node& node, std::span<const Bounded> parts) {
  switch (node.operation) {
    case Operation::choose: return of_choice(parts[0].range, parts[1].range, parts[2].range);
    case Operation::logical_and:
    case Operation::logical_or: return of_logic(node.operation, parts[0].range, parts[1].range);
    default: break;
  }
  for (const Bounded& part : parts)
    if (!part.range) return std::nullopt;
  return parts.size() == 1 ? of_one(node.operation, *parts[0].range)
                           : of_two(node.operation, *parts[0].range, *parts[1].range);
}

Bounds range_of(const Node& node, std::span<const Bounded> parts) {
  Bounds range = ends_of(node, parts);
  const auto known = [](const Bounded& part) { return part.range.has_value(); };
  if (range && std::all_of(parts.begin() + (node.operation == Operation::choose), parts.end(), known)) {
    const auto operands = node.operation == Operation::choose ? parts.subspan(1) : parts;
    range->multiple_of = std::max<std::int64_t>(multiple_of(node.operation, operands), 1);
  }
  return range;
}

Bounded bound(const Tree& tree, std::span<const Range> slots) {
  Bounded result{tree, std::nullopt};
  if (tree->operation == Operation::constant) {
    result.range = Range{tree->operand, tree->operand};
  } else if (tree->operation == Operation::slot) {
    result.range = slots[static_cast<std::size_t>(tree->operand)];
  } else {
    std::vector<Bounded> parts;
    std::vector<Tree> children;
    for (const Tree& child : tree->children) {
      parts.push_back(bound(child, slots));
      children.push_back(parts.back().tree);
    }
    result = {make_node(tree->operation, std::move(children)), range_of(*tree, parts)};
  }
  if (result.range && result.range->single()) result.tree = make_constant(result.range->lowest);
  return result;
}

}  // namespace

std::optional<Range> Expression::range(std::span<const Range> slots) const { return bound(tree_, slots).range; }

Expression Expression::within(std::span<const Range> slots) const {
  return {text_, fold(bound(tree_, slots).tree, {}, std::numeric_limits<int>::max())};
}

}  // namespace kiln::manifest
