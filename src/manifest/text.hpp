// Identifiers, and text that is safe to print in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::manifest {

inline constexpr std::size_t max_name_length = 64;

/// True for a letter or underscore followed by letters, digits and underscores, at most max_name_length in all.
bool is_identifier(std::string_view text) noexcept;
/// What is_identifier() asks, for messages: "a letter or underscore, then ..."
std::string name_rule();

/// Returns the names in an expression's text, functions included, quoted words excluded.
std::vector<std::string_view> names_in(std::string_view text);

enum class Lines : std::uint8_t { kept, escaped };
/// Escapes text for a terminal: control characters as \x1b or \u009b, bidirectional controls as \u202e, bytes that are
/// not UTF-8 as \xff. Tabs and line ends remain with Lines::kept. JSON text keeps its meaning.
std::string printable(std::string_view text, Lines lines = Lines::kept);

/// Returns 'text' in quotes, escaped with Lines::escaped and cut after 80 characters.
std::string quote(std::string_view text);

/// "'a', 'b' or 'c'"
std::string one_of(const std::vector<std::string>& words);

/// Returns the word of `known` nearest to `word`, or an empty string when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// Returns " (did you mean 'rows'?)", or an empty string when no known word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace kiln::manifest
