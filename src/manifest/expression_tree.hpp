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
  slot,  // operand: the value, the slot
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
  choose,  // evaluated only as far as needed
  jump,
  jump_if_zero,
  jump_if_zero_else_drop,
  jump_if_set_else_drop,
  to_truth,  // in programs only; operand: the target
};

using Tree = std::shared_ptr<const Node>;

struct Node {
  Operation operation = Operation::constant;
  std::int64_t operand = 0;
  std::vector<Tree> children;
  int depth = 1;
  int size = 1;  // of nodes; one that several parents share, as those of terms are, counts for each
};

inline constexpr int max_tree_depth = 256;  // bounds the recursion of everything that walks a tree
inline constexpr int max_tree_size = 4096;  // and its time: terms of terms grow by powers

Tree make_constant(std::int64_t value);
Tree make_slot(int slot);
Tree make_node(Operation operation, std::vector<Tree> children);

/// Parses and resolves; throws as Expression::parse does.
Tree parse_tree(std::string_view text, const Symbols& symbols);

/// Replaces slots from first_known on by their values and computes what is constant. A part that cannot be computed is
/// kept, so that its status shows when, and only when, it is evaluated.
Tree fold(const Tree& tree, std::span<const std::int64_t> frame, int first_known);

/// The names of functions, which nothing else may be called.
const std::vector<std::string>& function_names();

}  // namespace kiln::manifest
