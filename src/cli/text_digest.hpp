// The digest in the first line of a file that kiln workload or kiln trace wrote, by which they know that nobody has
// changed it since.
//
//   file  := words " (digest " DIGEST ")" '\n' rest      words: a comment, '#' ...
//   DIGEST: the first 16 hex digits of SHA-256(field(words) field(rest)), with fields as manifest::Hasher takes them
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::cli {

/// Returns the text with its digest in the first line. Precondition: the first line is a comment that ends in '\n'.
std::string with_digest(std::string_view text);

enum class Authorship : std::uint8_t { whole, changed, no_digest };
/// Returns whether a text is still as with_digest() returned it.
Authorship authorship_of(std::string_view text);

}  // namespace kiln::cli
