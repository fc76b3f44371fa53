#include "manifest/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace kiln::manifest {
namespace {

// Character classes of the C locale. <cctype> would use the process's locale.
bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Decodes a well-formed character.
char32_t code_point(std::string_view character) noexcept {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first;
  char32_t code = first & (0x7fU >> character.size());
  for (const char each : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(each) & 0x3fU);
  return code;
}

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

std::size_t character_at(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  if (length > 2) {
    const unsigned second = byte(1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
    if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  }
  return length;
}

std::string printable(std::string_view text, Lines lines) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_at(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    const char32_t code = code_point(character);
    if (length == 0 || (code < 0x20 && !(lines == Lines::kept && (code == '\n' || code == '\t'))))
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(character.front()));
    else if ((code >= 0x7f && code <= 0x9f) || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
    else
      result += character;
    text.remove_prefix(character.size());
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
