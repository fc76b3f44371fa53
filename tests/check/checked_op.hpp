// An op with two implementations, a workspace and an optional tensor, in which tests make mistakes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "check/check.hpp"

namespace kiln::check::testing {

/// The files of a folder, by name.
struct Folder {
  std::vector<std::pair<std::string, std::string>> files;

  [[nodiscard]] std::string& operator[](std::string_view name);
  [[nodiscard]] ReadOp read() const;
};
Folder row_sums();

/// Replaces the one occurrence of `from` in the file.
void replace(Folder& folder, std::string_view file, std::string_view from, std::string_view to);
/// The line of the one occurrence of `text` in the file.
int line_of(Folder& folder, std::string_view file, std::string_view text);

/// Checks for an H200 and an A100. `compiles`: of each implementation and device; 0: none.
Findings findings_in(const Folder& folder, std::size_t compiles = 0);
Target h200();
Target a100();

/// Each finding on a line of its own.
std::string text_of(const Findings& findings);

}  // namespace kiln::check::testing
