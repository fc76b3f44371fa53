// What the constraints of an implementation leave of its configs.
#pragma once

#include <optional>

#include "check/geometry.hpp"

namespace kiln::check {

struct Removal {
  std::string condition;
  std::string file;  // the implementation's, or that of a part
  int line = 1;
  bool is_search = false;                 // of [search]
  std::optional<std::int64_t> removed{};  // configs that it alone breaks; nothing: too many values to try
};

/// The space of one implementation at its first usual problem.
struct Space {
  std::string implementation, file, problem;
  std::int64_t configs = 1;
  std::size_t legal = 0;  // at most most_legal
  std::size_t searched = 0;
  std::vector<Removal> removals;
};

/// Counts what each condition removes, and names those without a value, and spaces with nothing left.
Space check_space(const Subject& subject, Findings& findings);

}  // namespace kiln::check
