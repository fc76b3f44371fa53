// [types], [choices] and [runtime]: the names that select, and those that never do.
#include <fmt/format.h>

#include <algorithm>

#include "spec/manifest_parts.hpp"
#include "spec/text.hpp"

namespace kiln::spec {
namespace {

constexpr std::size_t max_words = 64;  // of one selection; a problem holds an index in a byte

const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> names = {"bf16", "f16", "f32", "f64", "e4m3", "e5m2", "i8", "u8", "i32", "i64"};
  return names;
}

std::vector<std::string> read_words(const ManifestReader& reader, const TomlEntry& entry) {
  const std::string what = fmt::format("a value of '{}'", entry.key);
  std::vector<std::string> words;
  for (const TomlValue& each : reader.list(entry.value, fmt::format("the values of '{}'", entry.key))) {
    const std::string& word = reader.text(each, what);
    if (!is_identifier(word)) reader.fail(each.line, fmt::format("{} as {}", quote(word), what), "an identifier");
    if (std::ranges::find(words, word) != words.end())
      reader.fail(each.line, quote(word) + " twice", "each value once");
    words.push_back(word);
  }
  if (words.empty() || words.size() > max_words) {
    reader.fail(entry.value.line, fmt::format("{} values of '{}'", words.size(), entry.key),
                fmt::format("1 to {}", max_words));
  }
  return words;
}

void read_default(const ManifestReader& reader, const TomlValue& value, Op& op, Runtime& runtime) {
  const std::string what = fmt::format("the default of '{}'", runtime.name);
  if (runtime.is_integer()) {
    runtime.default_integer = reader.expression(value, what, op.symbols, op, Known::launch);
  } else {
    runtime.default_real = reader.real(value, what);
  }
}

// Defaults are computed in the manifest's order, so each may use only the values before it.
void check_earlier(const ManifestReader& reader, const TomlEntry& entry, const Op& op,
                   const std::optional<Expression>& expression, int slot) {
  if (!expression) return;
  for (const int used : expression->slots()) {
    if (used < slot || used >= op.first_static()) continue;
    reader.fail(entry.value.line, fmt::format("{} in an expression of '{}'", quote(op.symbols[used].name), entry.key),
                "only run-time values declared before it");
  }
}

}  // namespace

std::vector<Selection> read_types(const ManifestReader& reader, const TomlValue& section) {
  std::vector<Selection> types;
  for (const TomlEntry& entry : reader.table(section, "[types]")) {
    if (parse_dtype(entry.key))
      reader.fail(entry.value.line, quote(entry.key) + " as the name of a type", "a name that is no element type");
    Selection type{entry.key, read_words(reader, entry), {}};
    for (const TomlValue& each : entry.value.items) {
      type.dtypes.push_back(static_cast<DType>(reader.one_of(each, "an element type", dtype_names())));
    }
    types.push_back(std::move(type));
  }
  return types;
}

std::vector<Selection> read_choices(const ManifestReader& reader, const TomlValue& section) {
  std::vector<Selection> choices;
  for (const TomlEntry& entry : reader.table(section, "[choices]"))
    choices.push_back({entry.key, read_words(reader, entry), {}});
  return choices;
}

RuntimeType read_runtime_type(const ManifestReader& reader, const TomlValue& value) {
  return static_cast<RuntimeType>(
      reader.one_of(value, "a type of scalars", {"f32", "f64", "i32", "i64", "u32", "u64"}));
}

std::vector<Runtime> read_runtime(const ManifestReader& reader, const TomlValue& section) {
  std::vector<Runtime> values;
  for (const auto& [name, value] : reader.table(section, "[runtime]")) {
    Runtime runtime;
    runtime.name = name;
    if (value.kind == TomlValue::Kind::table) {
      const std::string where = fmt::format("run-time value '{}'", name);
      reader.check_keys(value, where, {"type", "default", "min"});
      runtime.type = read_runtime_type(reader, reader.required(value, where, "type"));
    } else {
      runtime.type = read_runtime_type(reader, value);
    }
    values.push_back(std::move(runtime));
  }
  check_count(reader, section.line, values.size(), max_runtime, "run-time values");
  return values;
}

void read_runtime_expressions(const ManifestReader& reader, const TomlValue& section, Op& op) {
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const TomlEntry& entry = section.entries[i];
    Runtime& runtime = op.runtime[i];
    const int slot = op.first_runtime() + static_cast<int>(i);
    if (const TomlValue* value = entry.value.find("default")) read_default(reader, *value, op, runtime);
    if (const TomlValue* value = entry.value.find("min")) {
      if (!runtime.is_integer())
        reader.fail(value->line, fmt::format("'min' on '{}', which is no integer", entry.key), "none");
      runtime.minimum =
          reader.expression(*value, fmt::format("the minimum of '{}'", entry.key), op.symbols, op, Known::launch);
    }
    check_earlier(reader, entry, op, runtime.default_integer, slot);
    check_earlier(reader, entry, op, runtime.minimum, slot);
  }
}

}  // namespace kiln::spec
