// What one op of torch is: which op of Kiln with which choices, and how its arguments and results go there. Python makes it of the
// op's manifest (kiln_torch/signature.py) and gives it as text, a part a line:
//
//   op NAME | folder PATH | word NAME VALUE                     the op, and its choices and types that are fixed
//   tensor NAME OPTIONAL RANK FLAT DENSE MUTATED                arguments, in the schema's order
//   axis NAME | length NAME | real NAME OPTIONAL | integer NAME OPTIONAL
//   solve AXIS TENSOR DIMENSION TIMES PLUS OVER GIVEN           axis = (size - PLUS) / TIMES * OVER; GIVEN: Kiln cannot solve it
//   size VALUE TENSOR DIMENSION                                 a run-time value that is a size
//   output NAME RANK FLAT LIKE TYPE... (ten)                    its type by that of argument LIKE
//   dim TOKEN...                                                of the last output, in postfix over axes and numbers
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kiln/kiln.h"

namespace kiln_torch {

struct Argument {
  enum class Kind : std::uint8_t { tensor, axis, length, real, integer };
  Kind kind;
  std::string name;
  bool is_optional = false;
  std::int64_t rank = 0;
  bool is_flat = false;     // its first dimension may stand for several of the tensor's
  bool is_dense = false;    // outputs lie as it does
  bool is_mutated = false;  // and no result
};

struct Token {
  enum class Kind : std::uint8_t {
    number,
    axis,
    add,
    subtract,
    multiply,
    divide,
    ceil_div,
    minimum,
    maximum,
    round_up
  };
  Kind kind;
  std::int64_t number;  // or the axis's index
};

struct Solve {
  std::size_t axis, argument, dimension;
  std::int64_t times, plus, over;
  bool is_given;
};

struct Size {
  std::string value;
  std::size_t argument, dimension;
};

struct Output {
  std::string name;
  std::int64_t rank;
  bool is_flat;
  std::size_t like;
  std::array<kiln_dtype, 10> types;
  std::vector<std::vector<Token>> dims;
};

struct Signature {
  std::string op, folder;
  std::vector<std::pair<std::string, std::string>> words;
  std::vector<std::string> axes;  // those that are solved or arguments
  std::vector<Argument> arguments;
  std::vector<Solve> solves;
  std::vector<Size> sizes;
  std::vector<Output> outputs;
};

/// Throws for text that is none.
Signature parse_signature(const std::string& text);
std::int64_t evaluate(const std::vector<Token>& tokens, std::span<const std::int64_t> axes);

}  // namespace kiln_torch
