// What the constraints of an implementation leave of its configs.
#pragma once

#include <optional>
#include <span>

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

/// Returns the index of a constraint that no config meets at usual sizes, whatever the others say, if there is one.
std::optional<std::size_t> impossible_constraint(const manifest::Site& site,
                                                 const manifest::Implementation& implementation,
                                                 std::span<const Problem> selections);

}  // namespace kiln::check
