// Integer expressions of manifests: 64-bit signed, overflow detected, compiled to a flat program.
//
//   expression := ternary
//   ternary    := or ('?' ternary ':' ternary)?
//   or         := and ('||' and)*            and   := equal ('&&' equal)*      (both short-circuit)
//   equal      := compare (('=='|'!=') compare)?
//   compare    := sum (('<'|'<='|'>'|'>=') sum)?
//   sum        := product (('+'|'-') product)*
//   product    := unary (('*'|'/'|'%') unary)*
//   unary      := ('!'|'-') unary | primary
//   primary    := integer | name | name '(' ternary (',' ternary)* ')' | '(' ternary ')' | '"' word '"'
//
// Functions: min, max (two or more), ceil_div, round_up, pow2_ceil, log2 (floor), is_pow2, abs, sizeof(type name).
// A quoted word may only be compared (== or !=) with a name that is a type or a choice, and stands for its index. The
// parser replaces the name of a term by the term's expression in parentheses.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::manifest {

enum class Status : std::uint8_t { ok, overflow, division_by_zero, negative_argument };
std::string_view to_string(Status status) noexcept;

struct Value {
  std::int64_t number = 0;
  Status status = Status::ok;
  [[nodiscard]] bool ok() const noexcept { return status == Status::ok; }
  /// True when the value could be computed and is not zero.
  [[nodiscard]] bool truth() const noexcept { return ok() && number != 0; }
};

/// The values that a slot may have, both ends included, and what divides them all. By default, any.
struct Range {
  std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  std::int64_t multiple_of = 1;  // 1 or more
  [[nodiscard]] bool single() const noexcept { return lowest == highest; }
  [[nodiscard]] bool contains(std::int64_t value) const noexcept { return value >= lowest && value <= highest; }
  /// Of the ends alone.
  bool operator==(const Range& other) const noexcept { return lowest == other.lowest && highest == other.highest; }
};

inline constexpr int max_evaluation_stack = 32;  // deeper expressions are refused when they are parsed

struct Node;  // syntax tree and its operations, in expression_tree.hpp
enum class Operation : std::uint8_t;
class Symbols;

class Expression {
 public:
  /// Parses and resolves. Throws Error(bad_expression) naming the column, what was found and what was expected;
  /// an unknown name gets the nearest known one as a suggestion.
  static Expression parse(std::string_view text, const Symbols& symbols);
  static Expression constant(std::int64_t value);
  Expression();  // the constant 0

  /// Evaluates over a frame that holds every slot used. No allocation, no exception.
  [[nodiscard]] Value evaluate(std::span<const std::int64_t> frame) const noexcept {
    switch (shape_) {
      case Shape::constant: return {operand_};
      case Shape::slot: return {frame[static_cast<std::size_t>(operand_)]};
      case Shape::program: break;
    }
    return run(frame);
  }

  /// Returns this expression with the slots of [first_known, frame.size()) replaced by their values and folded. The
  /// result uses only slots below first_known. The hit path evaluates this form.
  [[nodiscard]] Expression specialise(std::span<const std::int64_t> frame, int first_known) const;

  /// Returns this expression for frames that have in slot `slots[i]` what they had in slot i.
  [[nodiscard]] Expression renumbered(std::span<const int> slots) const;

  /// Returns this expression for frames whose slots lie in these ranges (one range a slot): each part that has the same
  /// value in all such frames is folded. A constraint that always holds in a bucket becomes the constant 1.
  [[nodiscard]] Expression within(std::span<const Range> slots) const;
  /// Returns a range of the expression's values for such frames. Nothing where it may have no value in one.
  [[nodiscard]] std::optional<Range> range(std::span<const Range> slots) const;

  [[nodiscard]] std::optional<std::int64_t> constant_value() const noexcept;
  [[nodiscard]] bool uses(int slot) const noexcept;
  [[nodiscard]] std::vector<int> slots() const;  // sorted, unique
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const std::shared_ptr<const Node>& tree() const noexcept { return tree_; }

 private:
  friend class Formula;  // formula.hpp
  struct Instruction {
    Operation operation;
    std::int64_t operand;
  };
  enum class Shape : std::uint8_t {
    constant,
    slot,
    program
  };  // most grids and strides are one name and need no program
  Expression(std::string text, std::shared_ptr<const Node> tree);
  [[nodiscard]] Value run(std::span<const std::int64_t> frame) const noexcept;
  int emit(const Node& node, int depth);

  std::string text_;
  std::shared_ptr<const Node> tree_;
  std::vector<Instruction> program_;
  Shape shape_ = Shape::program;
  std::int64_t operand_ = 0;  // used when the shape is not a program
};

/// The names that an expression may use. Each symbol has a slot in the frame, a flat array of int64 over which
/// expressions are evaluated. Each term stands for an expression over symbols.
class Symbols {
 public:
  struct Symbol {
    std::string name;
    std::vector<std::string> words;   // values of a type or a choice; the slot holds the index
    std::vector<std::int64_t> sizes;  // bytes of each value of a type; else empty
  };
  struct Term {
    std::string name;
    Expression value;
  };
  /// Appends a symbol and returns its slot. Throws Error(bad_manifest) when the name is taken or is no identifier.
  int add(Symbol symbol);
  int add(std::string name) { return add(Symbol{std::move(name), {}, {}}); }
  /// Appends a term whose value uses these symbols. Throws as add does.
  void define(std::string name, Expression value);
  [[nodiscard]] std::optional<int> find(std::string_view name) const noexcept;
  [[nodiscard]] const Expression* find_term(std::string_view name) const noexcept;
  [[nodiscard]] const Symbol& operator[](int slot) const { return symbols_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(symbols_.size()); }
  [[nodiscard]] std::span<const Term> terms() const noexcept { return terms_; }

 private:
  void check_name(const std::string& name) const;

  std::vector<Symbol> symbols_;
  std::vector<Term> terms_;
};

}  // namespace kiln::manifest
