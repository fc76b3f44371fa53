#include "spec/toml_document.hpp"

#include <fmt/format.h>

#include <algorithm>

// The library (3.3) asserts that a table's name begins well before it checks it, so that "[=]" would abort. Without the
// assertion its check follows, and throws; NDEBUG would instead have some compilers assume what is asserted.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>

#include "kiln/error.hpp"
#include "spec/text.hpp"

namespace kiln::spec {
namespace {

using Kind = TomlValue::Kind;

struct Position {
  toml::source_position at;
  TomlEntry entry;
};

TomlValue convert(const toml::node& node, int line_of_key);

// The library keeps tables sorted by name; a manifest's order has a meaning, so it is restored from the keys' positions.
std::vector<TomlEntry> entries_of(const toml::table& table) {
  std::vector<Position> positions;
  for (const auto& [key, node] : table) {
    const auto at = key.source().begin;
    positions.push_back({at, {std::string(key.str()), convert(node, static_cast<int>(at.line))}});
  }
  std::ranges::stable_sort(positions, [](const Position& a, const Position& b) { return a.at < b.at; });
  std::vector<TomlEntry> entries;
  for (Position& each : positions) entries.push_back(std::move(each.entry));
  return entries;
}

TomlValue convert(const toml::node& node, int line_of_key) {
  TomlValue value;
  value.line = std::max(static_cast<int>(node.source().begin.line), line_of_key);
  if (const auto* text = node.as_string()) {
    value.kind = Kind::text;
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = Kind::integer;
    value.integer = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.kind = Kind::real;
    value.real = real->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.kind = Kind::boolean;
    value.boolean = boolean->get();
  } else if (const auto* array = node.as_array()) {
    value.kind = Kind::array;
    for (const toml::node& each : *array) value.items.push_back(convert(each, value.line));
  } else if (const auto* table = node.as_table()) {
    value.entries = entries_of(*table);
  } else {
    value.kind = Kind::time;
  }
  return value;
}

}  // namespace

const TomlValue* TomlValue::find(std::string_view key) const noexcept {
  const auto found = std::ranges::find(entries, key, &TomlEntry::key);
  return found == entries.end() ? nullptr : &found->value;
}

std::string TomlValue::described() const {
  switch (kind) {
    case Kind::text: return quote(text);
    case Kind::integer: return fmt::format("the number {}", integer);
    case Kind::real: return fmt::format("the number {}", real);
    case Kind::boolean: return boolean ? "true" : "false";
    case Kind::array: return fmt::format("a list of {}", items.size());
    case Kind::table: return "a table";
    case Kind::time: return "a date or time";
  }
  return "something else";
}

TomlValue parse_toml(std::string_view file, std::string_view text) {
  try {
    return convert(toml::parse(text), 1);
  } catch (const toml::parse_error& error) {
    throw Error(ErrorKind::bad_manifest,
                fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()));
  }
}

}  // namespace kiln::spec
