#include "manifest/expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "kiln/error.hpp"
#include "manifest/expression_arithmetic.hpp"
#include "manifest/expression_tree.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {

std::string_view to_string(Status status) noexcept {
  switch (status) {
    case Status::ok: return "ok";
    case Status::overflow: return "overflow of 64 bits";
    case Status::division_by_zero: return "division by zero";
    case Status::negative_argument: return "negative argument";
  }
  return "unknown";
}

void Symbols::check_name(const std::string& name) const {
  if (!is_identifier(name)) {
    throw Error(ErrorKind::bad_manifest, fmt::format("found the name {}, expected {}", quote(name), name_rule()));
  }
  if (std::ranges::find(function_names(), name) != function_names().end()) {
    throw Error(ErrorKind::bad_manifest,
                fmt::format("found the name {}, which is a function, expected another name", quote(name)));
  }
  if (find(name) || find_term(name) != nullptr) {
    throw Error(ErrorKind::bad_manifest,
                fmt::format("found the name {} a second time, expected a name of its own", quote(name)));
  }
}

int Symbols::add(Symbol symbol) {
  check_name(symbol.name);
  symbols_.push_back(std::move(symbol));
  return size() - 1;
}

void Symbols::define(std::string name, Expression value) {
  check_name(name);
  terms_.push_back({std::move(name), std::move(value)});
}

std::optional<int> Symbols::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(symbols_, name, &Symbol::name);
  if (found == symbols_.end()) return std::nullopt;
  return static_cast<int>(found - symbols_.begin());
}

const Expression* Symbols::find_term(std::string_view name) const noexcept {
  const auto found = std::ranges::find(terms_, name, &Term::name);
  return found != terms_.end() ? &found->value : nullptr;
}

Expression Expression::parse(std::string_view text, const Symbols& symbols) {
  return {std::string(text), fold(parse_tree(text, symbols), {}, symbols.size())};
}

Expression Expression::constant(std::int64_t value) { return {std::to_string(value), make_constant(value)}; }

Expression::Expression() : Expression("0", make_constant(0)) {}

Expression::Expression(std::string text, std::shared_ptr<const Node> tree)
    : text_(std::move(text)), tree_(std::move(tree)) {
  if (emit(*tree_, 0) > max_evaluation_stack) {
    throw Error(ErrorKind::bad_expression,
                fmt::format("found more than {} values held at once in {}, expected a simpler expression",
                            max_evaluation_stack, quote(text_)));
  }
  if (program_.size() != 1) return;
  shape_ = program_.front().operation == Operation::slot ? Shape::slot : Shape::constant;
  operand_ = program_.front().operand;
}

// Appends the program of a node whose result goes to stack position `depth`. Returns the stack height that the program
// needs.
int Expression::emit(const Node& node, int depth) {
  const auto append = [this](Operation operation, std::int64_t operand = 0) {
    program_.push_back({operation, operand});
    return program_.size() - 1;
  };
  const auto land = [this](std::size_t jump) { program_[jump].operand = static_cast<std::int64_t>(program_.size()); };

  if (node.children.empty()) {
    append(node.operation, node.operand);
    return depth + 1;
  }
  int height = emit(*node.children[0], depth);
  if (node.operation == Operation::choose) {
    const std::size_t to_other = append(Operation::jump_if_zero);
    height = std::max(height, emit(*node.children[1], depth));
    const std::size_t to_end = append(Operation::jump);
    land(to_other);
    height = std::max(height, emit(*node.children[2], depth));
    land(to_end);
  } else if (node.operation == Operation::logical_and || node.operation == Operation::logical_or) {
    const bool both = node.operation == Operation::logical_and;
    const std::size_t to_end = append(both ? Operation::jump_if_zero_else_drop : Operation::jump_if_set_else_drop);
    height = std::max(height, emit(*node.children[1], depth));
    land(to_end);
    append(Operation::to_truth);
  } else {
    if (node.children.size() == 2) height = std::max(height, emit(*node.children[1], depth + 1));
    append(node.operation);
  }
  return height;
}

Value Expression::run(std::span<const std::int64_t> frame) const noexcept {
  std::array<std::int64_t, max_evaluation_stack> stack;  // the parser checked the height that the program needs
  std::size_t height = 0;
  for (std::size_t next = 0; next < program_.size(); ++next) {
    const auto [operation, operand] = program_[next];
    const auto jump = [&, target = operand] { next = static_cast<std::size_t>(target) - 1; };
    const auto drop = [&] { --height; };
    switch (operation) {
      case Operation::constant: stack[height++] = operand; break;
      case Operation::slot:
        assert(static_cast<std::size_t>(operand) < frame.size());
        stack[height++] = frame[static_cast<std::size_t>(operand)];
        break;
      case Operation::jump: jump(); break;
      case Operation::jump_if_zero:
        if (stack[--height] == 0) jump();
        break;
      case Operation::jump_if_zero_else_drop: stack[height - 1] == 0 ? jump() : drop(); break;
      case Operation::jump_if_set_else_drop: stack[height - 1] != 0 ? jump() : drop(); break;
      case Operation::to_truth: stack[height - 1] = stack[height - 1] != 0; break;
      default: {
        const bool one = operation <= Operation::absolute;
        if (!one) --height;
        const Value value =
            one ? apply(operation, stack[height - 1]) : apply(operation, stack[height - 1], stack[height]);
        if (!value.ok()) return value;
        stack[height - 1] = value.number;
      }
    }
  }
  return {stack[0]};
}

Expression Expression::specialise(std::span<const std::int64_t> frame, int first_known) const {
  return {text_, fold(tree_, frame, first_known)};
}

Expression Expression::renumbered(std::span<const int> slots) const { return {text_, renumber(tree_, slots)}; }

std::optional<std::int64_t> Expression::constant_value() const noexcept {
  if (tree_->operation != Operation::constant) return std::nullopt;
  return tree_->operand;
}

bool Expression::uses(int slot) const noexcept {
  return std::ranges::any_of(
      program_, [&](const Instruction& each) { return each.operation == Operation::slot && each.operand == slot; });
}

std::vector<int> Expression::slots() const {
  std::vector<int> result;
  for (const Instruction& each : program_) {
    if (each.operation == Operation::slot) result.push_back(static_cast<int>(each.operand));
  }
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace kiln::manifest
