// What a check found wrong in an op's folder.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "manifest/mistakes.hpp"
#include "manifest/toml_document.hpp"

namespace kiln::check {

enum class Severity : std::uint8_t {
  error,   // the op or one of its implementations cannot work as it is written
  warning  // it works, and what is written there has no effect or costs time
};
std::string_view to_string(Severity severity) noexcept;

struct Finding {
  Severity severity = Severity::error;
  std::string kind;  // one word for each check: "grid", "launch_bounds"
  std::string file;  // of a line of a part, Findings::add puts the part's
  manifest::Line line;
  std::string what;
  std::string remedy;
  std::string at;  // the first problem, config and architecture where it is so; empty where it is so everywhere
};

/// "FILE:LINE: error: WHAT (at ...); REMEDY"
std::string to_string(const Finding& finding);

/// Keeps one finding for each file, line and kind, the first: others are of further sizes or configs.
class Findings {
 public:
  void add(Finding finding);
  /// Adds what a manifest's reader says, as an error of the kind "manifest".
  void add(const manifest::Mistake& mistake);
  [[nodiscard]] bool has(const std::string& file, const manifest::Line& line, std::string_view kind) const;
  /// The findings by file, op.toml first, and line.
  [[nodiscard]] std::vector<Finding> sorted() const;
  [[nodiscard]] std::size_t count(Severity severity) const noexcept;

 private:
  std::vector<Finding> all_;
  std::set<std::tuple<std::string, int, std::string>> known_;
};

}  // namespace kiln::check
