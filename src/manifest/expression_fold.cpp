#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kiln/error.hpp"
#include "manifest/expression_arithmetic.hpp"
#include "manifest/expression_tree.hpp"

namespace kiln::manifest {
namespace {

std::optional<std::int64_t> constant_of(const Tree& tree) {
  if (tree->operation != Operation::constant) return std::nullopt;
  return tree->operand;
}

bool is_truth(Operation operation) {
  return (operation >= Operation::less && operation <= Operation::not_equal) || operation == Operation::logical_not ||
         operation == Operation::is_pow2 || operation == Operation::logical_and || operation == Operation::logical_or;
}

// Returns a tree whose value is 1 where that of `tree` is not 0, else 0.
Tree truth(const Tree& tree) {
  if (const auto value = constant_of(tree)) return make_constant(*value != 0 ? 1 : 0);
  return is_truth(tree->operation) ? tree : make_node(Operation::not_equal, {tree, make_constant(0)});
}

Tree fold_logic(Operation operation, const Tree& left, const Tree& right) {
  const auto value = constant_of(left);
  if (!value) return make_node(operation, {left, right});
  const bool decided = (*value != 0) == (operation == Operation::logical_or);
  return decided ? make_constant(*value != 0 ? 1 : 0) : truth(right);
}

Tree fold_two(Operation operation, const Tree& left, const Tree& right) {
  const auto a = constant_of(left);
  const auto b = constant_of(right);
  if (a && b) {
    const Value value = apply(operation, *a, *b);
    return value.ok() ? make_constant(value.number) : make_node(operation, {left, right});
  }
  const bool scales = operation == Operation::multiply || operation == Operation::divide;
  const bool shifts = operation == Operation::add || operation == Operation::subtract;
  if ((scales && b == 1) || (shifts && b == 0)) return left;
  if ((operation == Operation::multiply && a == 1) || (operation == Operation::add && a == 0)) return right;
  return make_node(operation, {left, right});
}

Tree fold_one(Operation operation, const Tree& child) {
  if (const auto operand = constant_of(child)) {
    if (const Value value = apply(operation, *operand); value.ok()) return make_constant(value.number);
  }
  return make_node(operation, {child});
}

}  // namespace

Tree make_constant(std::int64_t value) { return std::make_shared<const Node>(Node{Operation::constant, value, {}, 1}); }
Tree make_slot(int slot) { return std::make_shared<const Node>(Node{Operation::slot, slot, {}, 1}); }

Tree make_node(Operation operation, std::vector<Tree> children) {
  int depth = 0, size = 1;
  for (const Tree& child : children) {
    depth = std::max(depth, child->depth);
    size += child->size;
  }
  if (depth >= max_tree_depth) {
    throw Error(ErrorKind::bad_expression, "found more operations in a row than 256, expected a shorter expression");
  }
  if (size > max_tree_size) {
    throw Error(
        ErrorKind::bad_expression,
        fmt::format("found more than {} operations and names, those of terms included, expected fewer", max_tree_size));
  }
  return std::make_shared<const Node>(Node{operation, 0, std::move(children), depth + 1, size});
}

Tree fold(const Tree& tree, std::span<const std::int64_t> frame, int first_known) {
  const auto folded = [&](std::size_t child) { return fold(tree->children[child], frame, first_known); };
  switch (tree->operation) {
    case Operation::constant: return tree;
    case Operation::slot:
      return tree->operand < first_known ? tree : make_constant(frame[static_cast<std::size_t>(tree->operand)]);
    case Operation::choose: {
      const Tree condition = folded(0);
      if (const auto value = constant_of(condition)) return folded(*value != 0 ? 1 : 2);
      return make_node(Operation::choose, {condition, folded(1), folded(2)});
    }
    case Operation::logical_and:
    case Operation::logical_or: return fold_logic(tree->operation, folded(0), folded(1));
    default:
      return tree->children.size() == 1 ? fold_one(tree->operation, folded(0))
                                        : fold_two(tree->operation, folded(0), folded(1));
  }
}

Tree renumber(const Tree& tree, std::span<const int> slots) {
  if (tree->operation == Operation::slot) return make_slot(slots[static_cast<std::size_t>(tree->operand)]);
  if (tree->children.empty()) return tree;
  Node node = *tree;
  for (Tree& child : node.children) child = renumber(child, slots);
  return std::make_shared<const Node>(std::move(node));
}

}  // namespace kiln::manifest
