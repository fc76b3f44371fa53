#include "manifest/text.hpp"

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <numeric>

namespace kiln::manifest {
namespace {

// Character classes of the C locale. <cctype> would use the process's locale.
bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

bool is_identifier(std::string_view text) noexcept {
  return !text.empty() && text.size() <= max_name_length && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

std::string name_rule() {
  return fmt::format("a letter or underscore, then letters, digits and underscores, at most {} in all",
                     max_name_length);
}

std::vector<std::string_view> names_in(std::string_view text) {
  std::vector<std::string_view> names;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    if (text[at] == '"') {
      end = std::min(text.find('"', end), text.size() - 1) + 1;
    } else if (is_letter(text[at]) || is_digit(text[at])) {
      while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
      if (is_letter(text[at])) names.push_back(text.substr(at, end - at));
    }
    at = end;
  }
  return names;
}

std::string printable(std::string_view text, Lines lines) {
  std::string result;
  result.reserve(text.size());
  const auto escape_byte = [&](char byte) { result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte)); };
  for (auto at = text.begin(); at != text.end();) {
    const auto invalid = utf8::find_invalid(at, text.end());
    while (at != invalid) {
      const auto first = at;
      const char32_t code = utf8::unchecked::next(at);
      if (code < 0x20 && !(lines == Lines::kept && (code == '\n' || code == '\t')))
        escape_byte(*first);
      else if ((code >= 0x7f && code <= 0x9f) || (code >= 0x202a && code <= 0x202e) ||
               (code >= 0x2066 && code <= 0x2069))
        result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
      else
        result.append(first, at);
    }
    if (at != text.end()) escape_byte(*at++);
  }
  return result;
}

std::string quote(std::string_view text) {
  constexpr std::size_t shown = 80;
  return "'" + printable(text.substr(0, shown), Lines::escaped) + (text.size() > shown ? "...'" : "'");
}

std::string one_of(const std::vector<std::string>& words) {
  std::string result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) result += i + 1 == words.size() ? " or " : ", ";
    result += quote(words[i]);
  }
  return result;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() > max_name_length) return {};
  // Up to a third of the letters may differ: "colz" is near "cols", "x" is near nothing.
  std::size_t allowed = word.size() / 3 + (word.size() > 3 ? 1 : 0);
  std::string result;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance > allowed || (!result.empty() && distance == allowed)) continue;
    allowed = distance;
    result = candidate;
  }
  return result;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? "" : fmt::format(" (did you mean {}?)", quote(meant));
}

}  // namespace kiln::manifest
