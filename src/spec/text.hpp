// Words of a manifest or of a person, as they stand in messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::spec {

inline constexpr std::size_t max_name_length = 64;

/// A letter or underscore, then letters, digits and underscores; at most max_name_length.
bool is_identifier(std::string_view text) noexcept;

/// The names in an expression's text, those of functions too; not what is quoted.
std::vector<std::string_view> names_in(std::string_view text);

/// 'text', with control characters as \xNN and anything past 80 characters left out.
std::string quote(std::string_view text);

/// "'a', 'b' or 'c'"
std::string one_of(const std::vector<std::string>& words);

/// The word of `known` that `word` was probably meant to be, or an empty string.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// " (did you mean 'rows'?)", or nothing when no known word is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace kiln::spec
