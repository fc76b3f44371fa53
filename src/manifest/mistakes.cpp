#include "manifest/mistakes.hpp"

#include <charconv>

#include "kiln/error.hpp"

namespace kiln::manifest {

Mistake mistake_of(const Error& error, std::string_view file) {
  Mistake mistake{std::string(file), 1, {}, {}};
  std::string_view text = error.what();
  if (text.starts_with(file) && text.substr(file.size()).starts_with(':')) {
    const std::string_view rest = text.substr(file.size() + 1);
    const auto [end, parsed] = std::from_chars(rest.data(), rest.data() + rest.size(), mistake.line);
    const std::string_view after = rest.substr(static_cast<std::size_t>(end - rest.data()));
    if (parsed == std::errc{} && after.starts_with(": ")) text = after.substr(2);
  }
  constexpr std::string_view between = ", expected ";
  const std::size_t at = text.rfind(between);
  mistake.found = text.substr(0, at);
  if (at != std::string_view::npos) mistake.expected = text.substr(at + between.size());
  return mistake;
}

}  // namespace kiln::manifest
