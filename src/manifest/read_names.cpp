// Reads [types], [choices] and [runtime].
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

constexpr std::size_t max_words = 64;  // a selection; a problem holds the index in a byte

const std::vector<std::string>& dtype_names() {
  static const auto& names =
      *new std::vector<std::string>{"bf16", "f16", "f32", "f64", "e4m3", "e5m2", "i8", "u8", "i32", "i64"};
  return names;
}

// The value is a list, or a table with the list under `of`.
const TomlValue& listed_values(const ManifestReader& reader, const TomlEntry& entry) {
  if (entry.value.kind != TomlValue::Kind::table) return entry.value;
  const std::string where = fmt::format("'{}'", entry.key);
  reader.check_keys(entry.value, where, {"of", "default"});
  return reader.required(entry.value, where, "of");
}

std::vector<std::string> read_words(const ManifestReader& reader, const TomlEntry& entry, bool element_types) {
  const std::string what = fmt::format("a value of '{}'", entry.key);
  std::vector<std::string> words;
  const auto& list = reader.list(listed_values(reader, entry), fmt::format("the values of '{}'", entry.key));
  if (list.empty() || list.size() > max_words) {
    reader.fail(entry.value.line, fmt::format("{} values of '{}'", list.size(), entry.key),
                fmt::format("1 to {}", max_words));
  }
  for (const TomlValue& each : list) {
    reader.attempt([&] {
      const std::string& word = reader.text(each, what);
      if (!is_identifier(word)) reader.fail(each.line, fmt::format("{} as {}", quote(word), what), name_rule());
      if (std::ranges::find(words, word) != words.end())
        reader.fail(each.line, quote(word) + " twice", "each value once");
      if (element_types) static_cast<void>(reader.one_of(each, "an element type", dtype_names()));
      words.push_back(word);
    });
  }
  return words;
}

std::uint8_t index_of(const ManifestReader& reader, const TomlValue& word, const Selection& selection) {
  return static_cast<std::uint8_t>(
      reader.one_of(word, fmt::format("the default of '{}'", selection.name), selection.values));
}

// The default is a word; or the name of an earlier selection, whose word it takes; or { like = NAME, WORD = another
// word }.
void read_selection_default(const ManifestReader& reader, const TomlValue& value, const std::vector<Selection>& earlier,
                            Selection& selection) {
  const bool is_table = value.kind == TomlValue::Kind::table;
  const std::string what = fmt::format("the default of '{}'", selection.name);
  const TomlValue& name = is_table ? reader.required(value, what, "like") : value;
  const auto like = std::ranges::find(earlier, reader.text(name, what), &Selection::name);
  if (like == earlier.end()) {
    std::vector<std::string> known;
    for (const Selection& each : earlier) known.push_back(each.name);
    if (!is_table) std::ranges::copy(selection.values, std::back_inserter(known));
    if (is_table || std::ranges::find(selection.values, name.text) == selection.values.end())
      reader.fail(name.line, fmt::format("{} as {}{}", name.described(), what, did_you_mean(name.text, known)),
                  known.empty() ? "a word, since no type or choice stands before it" : one_of(known));
    selection.defaults = {index_of(reader, value, selection)};
    return;
  }
  selection.like = static_cast<int>(like - earlier.begin());
  selection.defaults.clear();
  for (const TomlEntry& entry : is_table ? reader.table(value, what) : std::vector<TomlEntry>{})
    if (entry.key != "like" && std::ranges::find(like->values, entry.key) == like->values.end())
      reader.fail(entry.value.line, fmt::format("{} in {}", quote(entry.key), what),
                  fmt::format("'like', or a value of '{}': {}", like->name, one_of(like->values)));
  for (const std::string& word : like->values) {
    const TomlValue* instead = is_table ? value.find(word) : nullptr;
    const auto same = std::ranges::find(selection.values, word);
    if (instead == nullptr && same == selection.values.end())
      reader.fail(
          value.line, fmt::format("no default of '{}' where '{}' is {}", selection.name, like->name, word),
          fmt::format("{{ like = \"{}\", {} = a word }}, one of {}", like->name, word, one_of(selection.values)));
    selection.defaults.push_back(instead != nullptr ? index_of(reader, *instead, selection)
                                                    : static_cast<std::uint8_t>(same - selection.values.begin()));
  }
}

void add_selection(const ManifestReader& reader, const TomlEntry& entry, std::vector<Selection>& selections,
                   Selection selection) {
  if (const TomlValue* value = entry.value.find("default")) {
    const bool read = reader.attempt([&] { read_selection_default(reader, *value, selections, selection); });
    if (!read) selection.like = -1, selection.defaults = {0};
    selection.declares_default = true;
  }
  selections.push_back(std::move(selection));
}

// Reads `default` or `verify`, an integer or a real as the run-time value is.
void read_value(const ManifestReader& reader, const TomlValue* value, std::string_view key, const Op& op,
                const Runtime& runtime, std::optional<Expression>& integer, std::optional<RealExpression>& real) {
  if (value == nullptr) return;
  const std::string what = fmt::format("the {} of '{}'", key, runtime.name);
  if (runtime.is_integer())
    integer = reader.expression(*value, what, op.symbols, op, Known::every_rank);
  else
    real = reader.real_expression(*value, what, op);
}

/// What two keys say of one end of an integer's range: the bound, or the number before it.
struct BoundKeys {
  std::string_view reached, beyond;
  int step;  // from what is not reached to the bound
};

/// Reads `min` or `above` of an integer, or `max` or `below`. The least integer above a bound is 1 more.
std::optional<Expression> read_bound(const ManifestReader& reader, const TomlValue& table, const Op& op,
                                     const Runtime& runtime, const BoundKeys& keys) {
  const TomlValue* const reached = table.find(keys.reached);
  const TomlValue* const beyond = table.find(keys.beyond);
  if (reached != nullptr && beyond != nullptr)
    reader.fail(beyond->line, fmt::format("'{}' and '{}' on '{}'", keys.reached, keys.beyond, runtime.name),
                "one of them");
  if (reached == nullptr && beyond == nullptr) return std::nullopt;
  const std::string what = reached == nullptr      ? fmt::format("'{}' of '{}'", keys.beyond, runtime.name)
                           : keys.reached == "min" ? fmt::format("the minimum of '{}'", runtime.name)
                                                   : fmt::format("the maximum of '{}'", runtime.name);
  Expression bound =
      reader.expression(reached != nullptr ? *reached : *beyond, what, op.symbols, op, Known::every_rank);
  if (reached != nullptr) return bound;
  const auto number = bound.constant_value();
  if (!number) return Expression::parse(fmt::format("({}) {} 1", bound.text(), keys.step > 0 ? '+' : '-'), op.symbols);
  std::int64_t next = 0;
  if (__builtin_add_overflow(*number, keys.step, &next))
    reader.fail(beyond->line, fmt::format("{} as {}", *number, what),
                fmt::format("a number that has one {} it", keys.beyond));
  return Expression::constant(next);
}

/// Reads the bounds of an integer, once the defaults are read.
void read_integer_bounds(const ManifestReader& reader, const TomlValue& table, const Op& op, Runtime& runtime) {
  if (const TomlValue* const when = table.find("above_when"))
    reader.fail(when->line, fmt::format("'above_when' on '{}', which is an integer", runtime.name),
                "a 'min' that is an expression over types and choices");
  runtime.minimum = read_bound(reader, table, op, runtime, {"min", "above", 1});
  runtime.maximum = read_bound(reader, table, op, runtime, {"max", "below", -1});
}

/// Reads one end of a real's range, of which the first key says that it is reached.
std::optional<RealBound> read_real_bound(const ManifestReader& reader, const TomlValue& table, const Runtime& runtime,
                                         std::string_view reached, std::string_view beyond) {
  const TomlValue* const is_reached = table.find(reached);
  const TomlValue* const value = is_reached != nullptr ? is_reached : table.find(beyond);
  if (value == nullptr) return std::nullopt;
  if (is_reached != nullptr && table.find(beyond) != nullptr)
    reader.fail(value->line, fmt::format("'{}' and '{}' on '{}'", reached, beyond, runtime.name), "one of them");
  const std::string what = fmt::format("'{}' of '{}'", is_reached != nullptr ? reached : beyond, runtime.name);
  const double number = reader.real(*value, what);
  if (number < 0 || static_cast<float>(number) != number)
    reader.fail(value->line, fmt::format("{} as {}", number, what), "a number of 0 or more that f32 holds");
  return RealBound{number, is_reached != nullptr};
}

/// Whether the value lies within the bounds.
bool is_within(double value, const Runtime& runtime) {
  const auto& [lower, upper] = std::tie(runtime.lower, runtime.upper);
  return (!lower || (lower->reached ? value >= lower->value : value > lower->value)) &&
         (!upper || (upper->reached ? value <= upper->value : value < upper->value));
}

/// Reads the bounds of a real and `above_when`, once the defaults are read.
void read_real_bounds(const ManifestReader& reader, const TomlValue& table, const Op& op, Runtime& runtime) {
  runtime.lower = read_real_bound(reader, table, runtime, "min", "above");
  runtime.upper = read_real_bound(reader, table, runtime, "max", "below");
  const TomlValue* const when = table.find("above_when");
  if (when != nullptr && (!runtime.lower || runtime.lower->reached))
    reader.fail(when->line, fmt::format("'above_when' on '{}'", runtime.name), "'above' beside it");
  if (runtime.upper && (!runtime.lower || when != nullptr))
    reader.fail(table.line, fmt::format("'{}' with an upper bound alone", runtime.name),
                "'min' or 'above' beside it, of all types and choices");
  if (when != nullptr)
    runtime.above_when = read_condition(reader, *when, fmt::format("'above_when' of '{}'", runtime.name), "", op);
  for (const auto& value : {runtime.default_real, runtime.verify_real})
    if (value && value->slots().empty() && !is_within(value->evaluate({}).value_or(0), runtime))
      reader.fail(table.line, fmt::format("'{}' = {} beside {}", runtime.name, value->text(), bound_text(runtime)),
                  "default and verify within the bounds");
}

// The value is { team = "rank" }.
void read_team_value(const ManifestReader& reader, const TomlValue& value, const std::vector<Axis>& axes,
                     const std::vector<Runtime>& earlier, Runtime& runtime) {
  reader.check_keys(value, fmt::format("run-time value '{}' with 'team'", runtime.name), {"team"});
  static_cast<void>(
      reader.one_of(*value.find("team"), fmt::format("what '{}' tells of the team", runtime.name), {"rank"}));
  if (std::ranges::none_of(axes, &Axis::team))
    reader.fail(value.line, fmt::format("the rank of a team as '{}'", runtime.name),
                "an axis with team = true beside it");
  if (const auto other = std::ranges::find(earlier, true, &Runtime::team_rank); other != earlier.end())
    reader.fail(value.line, fmt::format("the team's rank as '{}' and '{}'", other->name, runtime.name), "it once");
  runtime.type = RuntimeType::i32;
  runtime.team_rank = true;
}

// Reads a run-time value's type, or which fact of the team it is.
void read_declaration(const ManifestReader& reader, const TomlValue& value, const std::vector<Axis>& axes,
                      const std::vector<Runtime>& earlier, Runtime& runtime) {
  if (value.find("team") != nullptr) {
    read_team_value(reader, value, axes, earlier, runtime);
  } else if (value.kind == TomlValue::Kind::table) {
    const std::string where = fmt::format("run-time value '{}'", runtime.name);
    reader.check_keys(value, where,
                      {"type", "default", "min", "above", "above_when", "max", "below", "verify", "team"});
    runtime.type = read_runtime_type(reader, reader.required(value, where, "type"));
  } else {
    runtime.type = read_runtime_type(reader, value);
  }
}

// Defaults are evaluated in the manifest's order, so each may use only earlier run-time values.
void check_earlier(const ManifestReader& reader, const TomlValue& table, const Op& op,
                   const std::optional<Expression>& expression, int slot) {
  if (!expression) return;
  for (const int used : expression->slots()) {
    if (used < slot || used >= op.first_static()) continue;
    reader.fail(table.line,
                fmt::format("{} in an expression of {}", quote(op.symbols[used].name), quote(op.symbols[slot].name)),
                "only run-time values declared before it");
  }
}

}  // namespace

void read_types(const ManifestReader& reader, const TomlValue& section, std::vector<Selection>& selections) {
  for (const TomlEntry& entry : reader.table(section, "[types]")) {
    if (parse_dtype(entry.key))
      reader.attempt([&] {
        reader.fail(entry.value.line, quote(entry.key) + " as the name of a type", "a name that is no element type");
      });
    Selection type;
    type.name = entry.key;
    reader.attempt([&] { type.values = read_words(reader, entry, true); });
    if (type.values.empty()) type.values = dtype_names();
    for (const std::string& word : type.values) type.dtypes.push_back(*parse_dtype(word));
    add_selection(reader, entry, selections, std::move(type));
  }
}

void read_choices(const ManifestReader& reader, const TomlValue& section, std::vector<Selection>& selections) {
  for (const TomlEntry& entry : reader.table(section, "[choices]")) {
    Selection choice;
    choice.name = entry.key;
    reader.attempt([&] { choice.values = read_words(reader, entry, false); });
    if (choice.values.empty()) choice.values.emplace_back("_");
    add_selection(reader, entry, selections, std::move(choice));
  }
}

RuntimeType read_runtime_type(const ManifestReader& reader, const TomlValue& value) {
  return static_cast<RuntimeType>(
      reader.one_of(value, "a type of scalars", {"f32", "f64", "i32", "i64", "u32", "u64"}));
}

std::vector<Runtime> read_runtime(const ManifestReader& reader, const TomlValue& section,
                                  const std::vector<Axis>& axes) {
  std::vector<Runtime> values;
  check_count(reader, section.line, section.entries.size(), max_runtime, "run-time values");
  for (const auto& [name, value] : reader.table(section, "[runtime]")) {
    Runtime runtime;
    runtime.name = name;
    runtime.line = value.line.number;
    const bool read =
        reader.attempt([&, &its_value = value] { read_declaration(reader, its_value, axes, values, runtime); });
    if (!read) runtime.type = RuntimeType::i64;  // which expressions may use
    values.push_back(std::move(runtime));
  }
  return values;
}

void read_bounds(const ManifestReader& reader, const TomlValue& table, Op& op, std::size_t index) {
  Runtime& runtime = op.runtime[index];
  const int slot = op.first_runtime() + static_cast<int>(index);
  if (reader.has_mistake_at(table.line)) return;
  reader.attempt([&] {
    read_value(reader, table.find("default"), "default", op, runtime, runtime.default_integer, runtime.default_real);
    check_earlier(reader, table, op, runtime.default_integer, slot);
  });
  reader.attempt([&] {
    read_value(reader, table.find("verify"), "value for verification", op, runtime, runtime.verify_integer,
               runtime.verify_real);
    check_earlier(reader, table, op, runtime.verify_integer, slot);
  });
  reader.attempt([&] {
    if (!runtime.is_integer()) return read_real_bounds(reader, table, op, runtime);
    read_integer_bounds(reader, table, op, runtime);
    check_earlier(reader, table, op, runtime.minimum, slot);
    check_earlier(reader, table, op, runtime.maximum, slot);
  });
}

void read_runtime_expressions(const ManifestReader& reader, const TomlValue& section, Op& op) {
  for (std::size_t i = 0; i < section.entries.size(); ++i) read_bounds(reader, section.entries[i].value, op, i);
}

}  // namespace kiln::manifest
