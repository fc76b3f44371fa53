// The syntax tree of an expression. Private to the expression sources.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/expression.hpp"

namespace kiln::manifest {

enum class Operation : std::uint8_t {
  constant,
  slot,  // the operand is the value, or the slot
  negate,
  logical_not,
  pow2_ceil,
  log2,
  is_pow2,
  absolute,  // one operand
  add,
  subtract,
  multiply,
  divide,
  remainder,  // two
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  minimum,
  maximum,
  ceil_div,
  round_up,
  logical_and,
  logical_or,
  choose,  // short-circuit
  jump,
  jump_if_zero,
  jump_if_zero_else_drop,
  jump_if_set_else_drop,
  to_truth,  // in programs only; the operand is the jump target
};

using Tree = std::shared_ptr<const Node>;

struct Node {
  Operation operation = Operation::constant;
  std::int64_t operand = 0;
  std::vector<Tree> children;
  int depth = 1;
  int size = 1;  // nodes; a node that several parents share, as terms' nodes are, counts once for each
};

inline constexpr int max_tree_depth = 256;  // bounds the recursion of every walk over a tree
inline constexpr int max_tree_size = 4096;  // bounds its time: terms of terms grow exponentially

Tree make_constant(std::int64_t value);
Tree make_slot(int slot);
Tree make_node(Operation operation, std::vector<Tree> children);

/// Parses and resolves; throws as Expression::parse does.
Tree parse_tree(std::string_view text, const Symbols& symbols);

/// Replaces slots from first_known on by their values and folds constant parts. A part whose value cannot be computed
/// is kept, so that its error is reported only when it is evaluated.
Tree fold(const Tree& tree, std::span<const std::int64_t> frame, int first_known);

/// Replaces slot i by slot slots[i].
Tree renumber(const Tree& tree, std::span<const int> slots);

/// The names of functions, which are reserved.
const std::vector<std::string>& function_names();

}  // namespace kiln::manifest
