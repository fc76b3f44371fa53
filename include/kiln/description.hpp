// What an op takes, for programs that do not know it beforehand: Op::describe. `kiln ops OP --json` prints the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kiln/arguments.hpp"
#include "kiln/problem.hpp"
#include "kiln/tensor.hpp"

namespace kiln {

/// An integer, or a real.
using Number = std::variant<std::int64_t, double>;

struct AxisDescription {
  std::string name;
  AxisId id{};
  std::string policy;  // "pow2", 'pow2 when layout == "tn", else exact'; "exact" for the ranks of a team
  std::int64_t minimum = 1, maximum = 0, multiple_of = 1;
  bool on_device = false;  // a launch may read its length from device memory
  bool team = false;       // the number of ranks of the engine's team
  // Of the problem; 0 without one, and where its size is 0.
  std::int64_t size = 0;
  std::int64_t bucket_low = 0, bucket_high = 0;  // the sizes that share its bucket
};

/// A type or a choice.
struct SelectionDescription {
  std::string name;
  bool is_type = false;             // its values are element types
  std::vector<std::string> values;  // the index of one is what Problem::selections holds
  std::string default_text;         // a value, or "as dtype, but bf16 for e4m3"
  std::string value;                // of the problem; empty without one
};

/// A condition that types and choices must meet.
struct RuleDescription {
  std::string when;
  std::string message;  // why; may be empty
};

struct RuntimeDescription {
  std::string name;
  RuntimeId id{};
  std::string type;          // "f32", "i64", ...
  std::string default_text;  // an expression; empty: a launch must give the value
  std::string bound_text;   // "cols": an expression that integers reach at least. "at most rows", "1 to rows". Of reals
                            // "above 0", "at least 0 and below 1". Empty: none
  std::string verify_text;  // the value that tunes verify with, where it is not the default; may be empty
  bool team_rank = false;   // the rank, which no launch gives
  // At the problem's sizes, with the default of each other value. Nothing without a problem, and where there is none.
  std::optional<Number> default_value{};
  std::optional<Number> minimum{}, maximum{};
  // Of reals: what they do not reach. A real with a bound is finite.
  std::optional<double> exclusive_minimum{}, exclusive_maximum{};
};

struct TensorDescription {
  std::string name;
  TensorId id{};
  std::string type;                         // one of the op's types, or an element type
  std::vector<std::string> shape, strides;  // expressions, in elements, outermost first
  bool output = false;
  bool optional = false;    // the address may be null
  bool per_rank = false;    // each rank of a team has its own
  std::string initialised;  // where an output is also read: an expression, "1" for always; empty: never
  std::string when;         // where the op has it: an expression over types and choices; empty: always
  // At the problem's sizes, with the default of each run-time value. Without a problem: true, nothing, empty and 0.
  bool present = true;  // what `when` says
  std::optional<DType> element{};
  std::vector<std::int64_t> sizes{}, default_strides{};
  std::int64_t bytes = 0;  // from the first element to the end of the last
  /// Bytes to which the address must be aligned for some config to serve, and for all defaults to serve. Between the
  /// two a launch may be slower.
  std::int64_t least_alignment = 0, best_alignment = 0;
};

struct OpDescription {
  std::string name, summary;
  std::string contract;  // the comment at the head of its op.toml, by lines; may be empty
  std::int64_t revision = 0;
  std::string folder;  // "built-in", or a path
  std::vector<AxisDescription> axes;
  std::vector<SelectionDescription> selections;  // types and choices, in the order of Problem::selections
  std::vector<RuleDescription> rules;
  std::vector<RuntimeDescription> runtime;
  std::vector<TensorDescription> tensors;
  std::vector<std::string> implementations;
};

}  // namespace kiln
