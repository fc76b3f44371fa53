#include "programs/ptx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

namespace bench {
namespace {

bool in_name(char c) noexcept { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$'; }
bool is_blank(char c) noexcept { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// Whether the compiler made the name of one in the source. PTX's own words begin with a letter, and functions of the driver, such as vprintf
/// and __assertfail, otherwise.
bool is_mangled(std::string_view word) noexcept {
  return word.starts_with("_Z") || word.starts_with("_INTERNAL_") || word.starts_with("$L");
}

/// Calls `visit(part, is_word)` for each word of a line and for each character between words.
template <class Visit>
void each_part(std::string_view line, Visit visit) {
  while (!line.empty()) {
    std::size_t end = 0;
    while (end < line.size() && in_name(line[end])) ++end;
    visit(line.substr(0, std::max<std::size_t>(end, 1)), end > 0);
    line.remove_prefix(std::max<std::size_t>(end, 1));
  }
}

/// The lines that count, without comments and blanks at their ends. No string in PTX of a kernel holds slashes.
std::vector<std::string_view> lines_of(std::string_view ptx) {
  std::vector<std::string_view> lines;
  while (!ptx.empty()) {
    std::string_view line = ptx.substr(0, ptx.find('\n'));
    ptx.remove_prefix(std::min(ptx.size(), line.size() + 1));
    line = line.substr(0, line.find("//"));
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
    const std::string_view first = line.substr(0, line.find_first_of(" \t"));
    if (!first.empty() && first != ".file" && first != ".loc") lines.push_back(line);
  }
  return lines;
}

using Counts = std::map<std::string_view, int>;

Counts uses_of_names(const std::vector<std::string_view>& lines) {
  Counts counts;
  for (const std::string_view line : lines)
    each_part(line, [&](std::string_view part, bool is_word) {
      if (is_word && is_mangled(part)) ++counts[part];
    });
  return counts;
}

/// Whether the line declares a variable in global or constant memory that no other line names.
bool is_unused_variable(std::string_view line, const Counts& uses) {
  if (!line.ends_with(';') ||
      (line.find(".global .align") == std::string_view::npos && line.find(".const .align") == std::string_view::npos))
    return false;
  bool is_unused = false, is_first = true;
  each_part(line, [&](std::string_view part, bool is_word) {
    if (!is_word || !is_mangled(part) || !is_first) return;
    is_first = false;
    is_unused = uses.at(part) == 1;
  });
  return is_unused;
}

}  // namespace

std::string normal_ptx(std::string_view ptx) {
  const std::vector<std::string_view> lines = lines_of(ptx);
  const Counts uses = uses_of_names(lines);
  std::map<std::string_view, std::size_t> numbers;
  std::string text;
  for (const std::string_view line : lines) {
    if (is_unused_variable(line, uses)) continue;
    each_part(line, [&](std::string_view part, bool is_word) {
      if (is_word && is_mangled(part))
        text += fmt::format("_{}", numbers.try_emplace(part, numbers.size()).first->second);
      else
        text += part;
    });
    text += '\n';
  }
  return text;
}

}  // namespace bench
