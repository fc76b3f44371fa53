#include "manifest/manifest_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

using Kind = TomlValue::Kind;

/// Of mistakes that were kept already.
struct Told : Error {
  Told() : Error(ErrorKind::bad_manifest, "found mistakes, expected none") {}
};

std::vector<std::string> as_strings(std::initializer_list<std::string_view> words) {
  return {words.begin(), words.end()};
}

// Returns " by the term 'NAME'" when the expression uses the slot through a term alone, else an empty string.
std::string by_term(const Expression& expression, const Symbols& symbols, int slot) {
  const auto names = names_in(expression.text());
  if (std::ranges::find(names, symbols[slot].name) != names.end()) return {};
  for (const std::string_view name : names) {
    const Expression* term = symbols.find_term(name);
    if (term != nullptr && term->uses(slot)) return fmt::format(" by the term {}", quote(name));
  }
  return {};
}

}  // namespace

std::string ManifestReader::place_of(const Line& line) const {
  return fmt::format("{}:{}", line.part ? *line.part : file_, line.number);
}

void ManifestReader::fail(const Line& line, std::string_view found, std::string_view expected) const {
  throw Error(ErrorKind::bad_manifest, fmt::format("{}: found {}, expected {}", place_of(line), found, expected));
}

bool ManifestReader::has_mistake_at(const Line& line) const {
  if (mistakes_ == nullptr) return false;
  const std::string& file = line.part ? *line.part : file_;
  return std::any_of(mistakes_->begin() + static_cast<std::ptrdiff_t>(earlier_), mistakes_->end(),
                     [&](const Mistake& each) { return each.line == line.number && each.file == file; });
}

bool ManifestReader::has_mistakes() const {
  if (mistakes_ == nullptr) return false;
  return mistakes_->size() > earlier_ || std::any_of(mistakes_->begin(), mistakes_->end(),
                                                     [](const Mistake& each) { return each.file.ends_with(op_file); });
}

void ManifestReader::stop() const { throw Told(); }

void ManifestReader::keep(const Error& error) const {
  if (error.kind() != ErrorKind::bad_manifest) throw;
  if (dynamic_cast<const Told*>(&error) != nullptr) return;
  const std::string_view text = error.what();
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const std::string& each) {
    return text.starts_with(each) && text.substr(each.size()).starts_with(':');
  });
  mistakes_->push_back(mistake_of(error, part == parts_.end() ? file_ : *part));
}

void ManifestReader::check_keys(const TomlValue& value, std::string_view where,
                                std::initializer_list<std::string_view> known) const {
  for (const TomlEntry& entry : table(value, where)) {
    if (std::ranges::find(known, entry.key) != known.end()) continue;
    const auto words = as_strings(known);
    attempt([&] {
      fail(entry.value.line,
           fmt::format("the unknown key {} in {}{}", quote(entry.key), where, did_you_mean(entry.key, words)),
           manifest::one_of(words));
    });
  }
}

const TomlValue& ManifestReader::required(const TomlValue& table, std::string_view where, std::string_view key) const {
  const TomlValue* value = table.find(key);
  if (value != nullptr) return *value;
  for (const TomlEntry& each : table.entries)
    if (has_mistake_at(each.value.line) && !nearest(each.key, {std::string(key)}).empty()) stop();
  fail(table.line, fmt::format("no '{}' in {}", key, where), "one");
}

const std::string& ManifestReader::text(const TomlValue& value, std::string_view what) const {
  if (value.kind != Kind::text) fail(value.line, fmt::format("{} as {}", value.described(), what), "a text");
  return value.text;
}

std::int64_t ManifestReader::integer(const TomlValue& value, std::string_view what) const {
  if (value.kind != Kind::integer) fail(value.line, fmt::format("{} as {}", value.described(), what), "an integer");
  return value.integer;
}

std::int64_t ManifestReader::integer(const TomlValue& value, std::string_view what, std::int64_t least) const {
  const std::int64_t number = integer(value, what);
  if (number < least)
    fail(value.line, fmt::format("{} as {}", value.described(), what), fmt::format("{} or more", least));
  return number;
}

double ManifestReader::real(const TomlValue& value, std::string_view what) const {
  if (value.kind == Kind::integer) return static_cast<double>(value.integer);
  if (value.kind != Kind::real) fail(value.line, fmt::format("{} as {}", value.described(), what), "a number");
  return value.real;
}

bool ManifestReader::boolean(const TomlValue& value, std::string_view what) const {
  if (value.kind != Kind::boolean) fail(value.line, fmt::format("{} as {}", value.described(), what), "true or false");
  return value.boolean;
}

const std::vector<TomlValue>& ManifestReader::list(const TomlValue& value, std::string_view what) const {
  if (value.kind == Kind::table && what.starts_with("'pass'"))
    fail(value.line, fmt::format("one table as {}", what), "a list of them: its header in two brackets, [[...pass]]");
  if (value.kind != Kind::array) fail(value.line, fmt::format("{} as {}", value.described(), what), "a list in [ ]");
  return value.items;
}

const std::vector<TomlEntry>& ManifestReader::table(const TomlValue& value, std::string_view what) const {
  if (value.kind != Kind::table) fail(value.line, fmt::format("{} as {}", value.described(), what), "a table");
  return value.entries;
}

std::string ManifestReader::text_or(const TomlValue& table, std::string_view key, std::string_view otherwise) const {
  const TomlValue* value = table.find(key);
  return value == nullptr ? std::string(otherwise) : text(*value, fmt::format("'{}'", key));
}

bool ManifestReader::boolean_or(const TomlValue& table, std::string_view key, bool otherwise) const {
  const TomlValue* value = table.find(key);
  return value == nullptr ? otherwise : boolean(*value, fmt::format("'{}'", key));
}

std::size_t ManifestReader::one_of(const TomlValue& value, std::string_view what,
                                   const std::vector<std::string>& words) const {
  const std::string& word = text(value, what);
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) {
    fail(value.line, fmt::format("{} as {}{}", quote(word), what, did_you_mean(word, words)), manifest::one_of(words));
  }
  return static_cast<std::size_t>(found - words.begin());
}

int ManifestReader::add(Symbols& symbols, Symbols::Symbol symbol, const Line& line) const {
  try {
    return symbols.add(std::move(symbol));
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_manifest, fmt::format("{}: {}", place_of(line), error.what()));
  }
}

void ManifestReader::define(Symbols& symbols, const std::string& name, const Expression& value,
                            const Line& line) const {
  try {
    symbols.define(name, value);
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_manifest, fmt::format("{}: {}", place_of(line), error.what()));
  }
}

Expression ManifestReader::expression(const TomlValue& value, std::string_view what, const Symbols& symbols) const {
  if (value.kind == Kind::integer) return Expression::constant(value.integer);
  if (value.kind != Kind::text) {
    fail(value.line, fmt::format("{} as {}", value.described(), what), "an expression: a text or an integer");
  }
  try {
    return Expression::parse(value.text, symbols);
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_manifest, fmt::format("{}: in {}: {}", place_of(value.line), what, error.what()));
  }
}

Expression ManifestReader::expression(const TomlValue& value, std::string_view what, const Symbols& symbols,
                                      const Op& op, Known known) const {
  Expression result = expression(value, what, symbols);
  check_known(result, what, symbols, op, known, value.line);
  return result;
}

RealExpression ManifestReader::real_expression(const TomlValue& value, std::string_view what, const Op& op) const {
  if (value.kind != Kind::text) return RealExpression::constant(real(value, what));
  try {
    RealExpression result = RealExpression::parse(value.text, op.symbols);
    for (const int slot : result.slots()) {
      const bool is_axis = slot < op.first_runtime();
      const std::string reason = is_axis ? why_not_known(op.symbols, op, slot, Known::plan)
                                         : fmt::format("{}, which is no axis,", quote(op.symbols[slot].name));
      if (!reason.empty())
        fail(value.line, fmt::format("{} in {} {}", reason, what, quote(result.text())),
             "axes of policy 'exact' alone");
    }
    return result;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_expression) throw;
    throw Error(ErrorKind::bad_manifest, fmt::format("{}: in {}: {}", place_of(value.line), what, error.what()));
  }
}

void ManifestReader::check_known(const Expression& expression, std::string_view what, const Symbols& symbols,
                                 const Op& op, Known known, const Line& line) const {
  for (const int slot : expression.slots()) {
    const std::string reason = why_not_known(symbols, op, slot, known);
    if (!reason.empty())
      fail(line,
           fmt::format("{} in {} {}{}", reason, what, quote(expression.text()), by_term(expression, symbols, slot)),
           "no such name there");
  }
}

std::string why_not_known(const Symbols& symbols, const Op& op, int slot, Known known) {
  const std::string name = quote(symbols[slot].name);
  if (slot < op.first_runtime()) {
    if (known == Known::device) return fmt::format("the axis {}, which no device fixes,", name);
    if (known != Known::plan) return {};
    for (const PolicyCase& each : op.axes[static_cast<std::size_t>(slot)].policies)
      if (each.policy.kind != PolicyKind::exact)
        return fmt::format("the axis {}, which varies within a bucket{},", name,
                           each.when ? fmt::format(" when '{}'", each.when->text()) : "");
    return {};
  }
  if (slot < op.first_static()) {
    const Runtime& runtime = op.runtime[static_cast<std::size_t>(slot - op.first_runtime())];
    if (!runtime.is_integer()) return fmt::format("the run-time value {}, which is no integer,", name);
    if (known == Known::every_rank && runtime.team_rank)
      return fmt::format("the run-time value {}, which differs from rank to rank,", name);
    return known >= Known::every_rank ? ""
                                      : fmt::format("the run-time value {}, which is known only at a launch,", name);
  }
  if (known == Known::device && slot >= op.first_parameter())
    return fmt::format("the parameter {}, which a config gives,", name);
  return {};
}

}  // namespace kiln::manifest
