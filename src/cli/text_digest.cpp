#include "cli/text_digest.hpp"

#include <fmt/format.h>

#include "manifest/key.hpp"

namespace kiln::cli {
namespace {

constexpr std::string_view before = " (digest ", after = ")";
constexpr std::size_t digits = 16;
constexpr std::size_t suffix_size = before.size() + digits + after.size();

std::string suffix_of(std::string_view words, std::string_view rest) {
  const std::string digest = manifest::to_hex(manifest::Hasher().field(words).field(rest).finish());
  return fmt::format("{}{}{}", before, digest.substr(0, digits), after);
}

}  // namespace

std::string with_digest(std::string_view text) {
  const std::size_t end = text.find('\n');
  const std::string_view words = text.substr(0, end), rest = text.substr(end + 1);
  return fmt::format("{}{}\n{}", words, suffix_of(words, rest), rest);
}

Authorship authorship_of(std::string_view text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  const std::size_t at = line.rfind(before);
  if (at == std::string_view::npos) return Authorship::no_digest;
  if (end == std::string_view::npos || line.size() != at + suffix_size) return Authorship::changed;
  const bool is_whole = line.substr(at) == suffix_of(line.substr(0, at), text.substr(end + 1));
  return is_whole ? Authorship::whole : Authorship::changed;
}

}  // namespace kiln::cli
