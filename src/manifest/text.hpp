// Words of a manifest or of a person, as they stand in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::manifest {

inline constexpr std::size_t max_name_length = 64;

/// A letter or underscore, then letters, digits and underscores; at most max_name_length.
bool is_identifier(std::string_view text) noexcept;

/// The names in an expression's text, those of functions too; not what is quoted.
std::vector<std::string_view> names_in(std::string_view text);

enum class Lines : std::uint8_t { kept, escaped };
/// The text as a terminal may be given it: control characters are escaped as \x1b or \u009b, what turns the direction of the text around
/// as \u202e, bytes that are not UTF-8 as \xff. Tabs and ends of lines stay where `lines` are kept. JSON stays the same JSON.
std::string printable(std::string_view text, Lines lines = Lines::kept);

/// 'text', escaped with its lines as printable() does, and anything past 80 characters left out.
std::string quote(std::string_view text);

/// "'a', 'b' or 'c'"
std::string one_of(const std::vector<std::string>& words);

/// The word of `known` that `word` was probably meant to be, or an empty string.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// " (did you mean 'rows'?)", or nothing when no known word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace kiln::manifest
