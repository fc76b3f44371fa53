// Reads [terms]: names for expressions of an implementation.
#include <fmt/format.h>

#include <algorithm>

#include "manifest/limits.hpp"
#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

/// Terms are read in order, and each may use only earlier ones, so that no term can use itself.
void check_above(const ManifestReader& reader, const TomlEntry& term, std::span<const TomlEntry> below) {
  const auto names = names_in(term.value.text);
  const auto is_named = [&](const TomlEntry& each) { return std::ranges::find(names, each.key) != names.end(); };
  if (is_named(term))
    reader.fail(term.value.line, fmt::format("the term {} in its own expression", quote(term.key)),
                "only terms above it");
  const auto later = std::ranges::find_if(below, is_named);
  if (later == below.end()) return;
  reader.fail(
      term.value.line,
      fmt::format("the term {}, which stands below, in the term {}", quote(later->key), quote(term.key)),
      fmt::format("only terms above it: move {} up, unless it is over {} in turn", quote(later->key), quote(term.key)));
}

/// Removes parentheses and spaces around a name.
std::string_view bare(std::string_view text) {
  constexpr std::string_view around = " \t\r\n()";
  const std::size_t begin = text.find_first_not_of(around);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(around) - begin + 1);
}

Expression read_term(const ManifestReader& reader, const TomlEntry& term, std::span<const TomlEntry> below,
                     const Symbols& symbols) {
  check_above(reader, term, below);
  Expression value = reader.expression(term.value, fmt::format("the term {}", quote(term.key)), symbols);
  const std::string_view named = bare(value.text());
  const auto slot = symbols.find(named);
  if (slot && !symbols[*slot].words.empty())
    reader.fail(term.value.line, fmt::format("{}, a type or a choice, as the term {}", quote(named), quote(term.key)),
                "a number: words have no other names");
  return value;
}

}  // namespace

void read_terms(const ManifestReader& reader, const TomlValue& section, const Op& op, Symbols& symbols) {
  std::span<const TomlEntry> below = reader.table(section, "[terms]");
  check_count(reader, section.line, below.size(), max_terms, "terms");
  for (const TomlEntry& entry : below)
    reader.attempt([&] { check_free_name(reader, entry.key, entry.value.line, op, symbols); });
  while (!below.empty()) {
    const TomlEntry& term = below.front();
    below = below.subspan(1);
    if (reader.has_mistake_at(term.value.line)) continue;
    Expression value = Expression::constant(1);
    reader.attempt([&] { value = read_term(reader, term, below, symbols); });
    reader.define(symbols, term.key, value, term.value.line);
  }
}

}  // namespace kiln::manifest
