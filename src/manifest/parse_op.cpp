// Makes an op of its folder's files.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "kiln/error.hpp"
#include "manifest/includes.hpp"
#include "manifest/manifest_parts.hpp"
#include "manifest/problem.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

constexpr std::string_view toml_suffix = ".toml";
constexpr std::string_view source_suffix = ".cuh";

const TomlValue& section_or_empty(const TomlValue& document, std::string_view key) {
  static const auto& empty = *new TomlValue;
  const TomlValue* section = document.find(key);
  return section == nullptr ? empty : *section;
}

void read_op_section(const ManifestReader& reader, const TomlValue& document, Op& op) {
  const TomlValue& section = reader.required(document, "the file", "op");
  reader.check_keys(section, "[op]", {"summary", "revision", "implementations", "allowed"});
  reader.attempt([&] { op.summary = reader.text(reader.required(section, "[op]", "summary"), "'summary'"); });
  reader.attempt([&] { op.revision = reader.integer(reader.required(section, "[op]", "revision"), "'revision'", 1); });
}

// Rules that types and choices must meet: expressions, or { when, message }. What a caller gets who gives none must
// meet them too.
void read_allowed(const ManifestReader& reader, const TomlValue& document, Op& op) {
  const TomlValue* const list = section_or_empty(document, "op").find("allowed");
  if (list == nullptr) return;
  Problem by_default;
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    by_default.selections[i] = op.selections[i].default_beside(by_default);
  const auto read_rule = [&](const TomlValue& each) {
    const bool is_table = each.kind == TomlValue::Kind::table;
    if (is_table) reader.check_keys(each, "a rule of 'allowed'", {"when", "message"});
    const TomlValue& when = is_table ? reader.required(each, "a rule of 'allowed'", "when") : each;
    Rule rule{read_condition(reader, when, "'allowed'", "; an implementation's 'requires' may name it", op),
              is_table ? reader.text_or(each, "message", "") : ""};
    const bool held = is_allowed(op, by_default);
    op.allowed.push_back(std::move(rule));
    if (held && !is_allowed(op, by_default))
      reader.fail(when.line, fmt::format("the rule '{}', which the defaults break", op.allowed.back().when.text()),
                  "defaults that are allowed");
  };
  for (const TomlValue& each : reader.list(*list, "'allowed'")) reader.attempt([&] { read_rule(each); });
}

// Adds symbols in the order of the frame.
void add_symbols(const ManifestReader& reader, const TomlValue& document, Op& op) {
  const auto line_of = [&](std::string_view section, const std::string& name) {
    const TomlValue* value = section_or_empty(document, section).find(name);
    return value == nullptr ? Line() : value->line;
  };
  bool all_added = true;
  const auto add = [&](Symbols::Symbol symbol, const Line& line) {
    all_added = reader.attempt([&] { reader.add(op.symbols, std::move(symbol), line); }) && all_added;
  };
  for (const Axis& axis : op.axes) add({axis.name, {}, {}}, line_of("axes", axis.name));
  for (const Runtime& value : op.runtime) add({value.name, {}, {}}, value.line);
  for (const Selection& selection : op.selections) {
    std::vector<std::int64_t> sizes;
    for (const DType type : selection.dtypes) sizes.push_back(size_of(type));
    add({selection.name, selection.values, sizes}, line_of(selection.is_type() ? "types" : "choices", selection.name));
  }
  if (!all_added) reader.stop();  // the slots of the frame would not be those of the names
  for (const std::string_view fact : DeviceFacts::names) {
    if (const auto taken = op.symbols.find(fact)) {
      const std::string_view section = *taken < op.first_runtime()  ? "axes"
                                       : *taken < op.first_static() ? "runtime"
                                                                    : "choices";
      reader.fail(line_of(section, std::string(fact)), fmt::format("the name {}, which is a device fact", quote(fact)),
                  "another name");
    }
    op.symbols.add(std::string(fact));
  }
}

void read_names(const ManifestReader& reader, const TomlValue& document, Op& op) {
  op.axes = read_axes(reader, reader.required(document, "the file", "axes"));
  op.runtime = read_runtime(reader, section_or_empty(document, "runtime"), op.axes);
  read_strides(reader, section_or_empty(document, "tensors"), op.runtime);
  read_types(reader, section_or_empty(document, "types"), op.selections);
  read_choices(reader, section_or_empty(document, "choices"), op.selections);
  check_count(reader, 1, op.selections.size(), max_selections, "types and choices");
  add_symbols(reader, document, op);
  read_policy_conditions(reader, *document.find("axes"), op);
  read_runtime_expressions(reader, section_or_empty(document, "runtime"), op);
  read_stride_expressions(reader, section_or_empty(document, "tensors"), op);
  reader.attempt([&] { read_allowed(reader, document, op); });
}

// An element that the reference leaves must hold the mark of one, so nothing may be there before, and integers have no
// mark.
Expression read_sample(const ManifestReader& reader, const TomlValue& value, const Op& op) {
  for (const Tensor& tensor : op.tensors)
    if (tensor.initialised)
      reader.fail(value.line, fmt::format("'sample' beside the output '{}' that is initialised", tensor.name),
                  "a reference of the whole output");
  if (value.kind == TomlValue::Kind::boolean) return Expression::constant(reader.boolean(value, "'sample'") ? 1 : 0);
  return reader.expression(value, "'sample'", op.symbols, op, Known::every_rank);
}

void read_reference(const ManifestReader& reader, const TomlValue& section, Op& op) {
  reader.check_keys(section, "[reference]", {"source", "toolkit_headers", "sample", "pass"});
  reader.attempt([&] { op.reference_source = read_source(reader, section, "reference.cuh", op); });
  reader.attempt([&] { op.reference_toolkit_headers = reader.boolean_or(section, "toolkit_headers", false); });
  if (const TomlValue* sample = section.find("sample"))
    reader.attempt([&] { op.reference_sample = read_sample(reader, *sample, op); });
  op.reference = read_passes(reader, section, "[reference]", op, op.symbols, {});
}

void read_cost(const ManifestReader& reader, const TomlValue& section, Op& op) {
  reader.check_keys(section, "[cost]", {"bytes", "flops"});
  const auto read = [&](std::string_view key, Expression& into) {
    if (const TomlValue* value = section.find(key))
      reader.attempt([&] { into = reader.expression(*value, quote(key), op.symbols, op, Known::every_rank); });
  };
  read("bytes", op.cost_bytes);
  read("flops", op.cost_flops);
}

// Implementations that [op] lists come first, in its order; the others follow by name.
std::vector<std::string> implementation_names(const ManifestReader& reader, const TomlValue& document,
                                              std::span<const SourceFile> files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (file.name == op_file || !file.name.ends_with(toml_suffix) || is_part(file.name)) continue;
    found.push_back(file.name.substr(0, file.name.size() - toml_suffix.size()));
  }
  std::ranges::sort(found);
  const TomlValue& section = section_or_empty(document, "op");
  if (found.empty()) reader.fail(section.line, "no implementation beside op.toml", "one NAME.toml or more");
  const TomlValue* listed = section.find("implementations");
  if (listed == nullptr) return found;
  auto next = found.begin();
  const auto place = [&](const TomlValue& each) {
    const auto at = std::find(next, found.end(), found[reader.one_of(each, "an implementation", found)]);
    if (at == found.end()) reader.fail(each.line, quote(each.text) + " twice in 'implementations'", "each once");
    std::rotate(next, at, at + 1);
    ++next;
  };
  reader.attempt([&] {
    for (const TomlValue& each : reader.list(*listed, "'implementations'")) reader.attempt([&] { place(each); });
  });
  return found;
}

/// FNV-1a of the names by which ids and problems are made.
std::uint32_t tag_of(const Op& op) {
  std::uint32_t hash = 2166136261U;
  const auto add = [&](std::string_view text) {
    for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * 16777619U;
    hash = (hash ^ 0xFFU) * 16777619U;  // no text has this byte
  };
  add(op.name);
  for (const Axis& each : op.axes) add(each.name);
  for (const Selection& each : op.selections) {
    add(each.name);
    for (const std::string& value : each.values) add(value);
  }
  for (const Runtime& each : op.runtime) add(each.name);
  for (const Tensor& each : op.tensors) add(each.name);
  return hash == 0 ? 1 : hash;
}

const SourceFile& file_of(std::span<const SourceFile> files, const std::string& name) {
  return *std::ranges::find(files, name, &SourceFile::name);
}

}  // namespace

std::string shown_file(const Op& op, std::string_view file) {
  return op.folder == "built-in" ? fmt::format("templates/{}/{}", op.name, file)
                                 : fmt::format("{}/{}", op.folder, file);
}

void check_count(const ManifestReader& reader, const Line& line, std::size_t count, int limit, std::string_view what) {
  if (count > static_cast<std::size_t>(limit))
    reader.fail(line, fmt::format("{} {}", count, what), fmt::format("at most {}", limit));
}

Expression read_condition(const ManifestReader& reader, const TomlValue& value, std::string_view what,
                          std::string_view instead, const Op& op) {
  Expression condition = reader.expression(value, what, op.symbols, op, Known::device);
  for (const int slot : condition.slots())
    if (slot >= op.first_device_fact())
      reader.fail(value.line, fmt::format("the device fact {} in {}", quote(op.symbols[slot].name), what),
                  fmt::format("types and choices alone{}", instead));
  return condition;
}

void check_free_name(const ManifestReader& reader, const std::string& name, const Line& line, const Op& op,
                     const Symbols& symbols, std::span<const Workspace> workspaces) {
  if (!is_identifier(name)) {
    reader.fail(line, fmt::format("the name {}", quote(name)), name_rule());
  }
  const bool taken = symbols.find(name) || symbols.find_term(name) != nullptr ||
                     std::ranges::find(op.tensors, name, &Tensor::name) != op.tensors.end() ||
                     std::ranges::find(workspaces, name, &Workspace::name) != workspaces.end();
  if (taken) reader.fail(line, fmt::format("the name {} a second time", quote(name)), "a name of its own");
}

std::string read_source(const ManifestReader& reader, const TomlValue& table, std::string_view otherwise,
                        const Op& op) {
  std::string source = reader.text_or(table, "source", otherwise);
  if (std::ranges::find(op.files, source, &SourceFile::name) != op.files.end()) return source;
  std::vector<std::string> names;
  for (const SourceFile& file : op.files) names.push_back(file.name);
  const TomlValue* value = table.find("source");
  reader.fail(value == nullptr ? table.line : value->line,
              fmt::format("no source {} in the folder{}", quote(source), did_you_mean(source, names)),
              names.empty() ? "a .cuh file there" : one_of(names));
}

namespace {

/// Reads op.toml. The list of implementations in [op] is read apart, by implementation_names().
void read_op(const ManifestReader& reader, const TomlValue& document, Op& op) {
  reader.check_keys(
      document, "the file",
      {"op", "axes", "types", "choices", "runtime", "tensors", "tolerance", "prepare", "reference", "cost"});
  reader.attempt([&] { read_op_section(reader, document, op); });
  read_names(reader, document, op);
  op.tensors = read_tensors(reader, reader.required(document, "the file", "tensors"), op);
  reader.attempt([&] { read_tolerance(reader, document.find("tolerance"), op); });
  reader.attempt([&] { op.prepare = read_prepare(reader, document.find("prepare"), op); });
  reader.attempt([&] {
    const TomlValue* const reference = document.find("reference");
    if (reference == nullptr)
      reader.fail(document.line, "no [reference] in the file",
                  "one with 'source' and [[reference.pass]]: plain kernels that every candidate is compared with");
    read_reference(reader, *reference, op);
  });
  reader.attempt([&] { read_cost(reader, section_or_empty(document, "cost"), op); });
}

void read_implementation_file(const SourceFile& file, const std::string& name, bool op_is_read, Op& op,
                              std::vector<Mistake>* mistakes) {
  ManifestReader reader(shown_file(op, file.name), mistakes);
  reader.attempt([&] {
    if (!is_identifier(name)) reader.fail(1, fmt::format("an implementation named {}", quote(name)), name_rule());
    const TomlValue document = read_with_parts(reader, file.text, op.manifests, op);
    if (op_is_read) op.implementations.push_back(read_implementation(reader, document, name, op));
  });
}

/// Leaves one of equal mistakes, which each manifest that includes a part has.
void keep_once(std::vector<Mistake>& mistakes) {
  std::set<std::tuple<std::string, int, std::string, std::string>> known;
  std::erase_if(mistakes, [&](const Mistake& each) {
    return !known.emplace(each.file, each.line, each.found, each.expected).second;
  });
}

Op read_folder(std::string_view name, std::string_view folder, std::span<const SourceFile> files,
               std::vector<Mistake>* mistakes) {
  Op op;
  op.name = name;
  op.folder = folder;
  const ManifestReader reader(shown_file(op, op_file), mistakes);
  reader.attempt([&] {
    if (!is_identifier(name)) reader.fail(1, fmt::format("a folder named {}", quote(name)), name_rule());
  });
  std::vector<SourceFile> sources;
  std::ranges::copy_if(files, std::back_inserter(sources),
                       [](const SourceFile& file) { return file.name.ends_with(source_suffix); });
  std::ranges::copy_if(files, std::back_inserter(op.manifests),
                       [](const SourceFile& file) { return file.name.ends_with(toml_suffix); });
  std::ranges::sort(sources, {}, &SourceFile::name);
  op.files = std::move(sources);

  TomlValue document;
  const bool op_is_read = reader.attempt([&] {
    if (std::ranges::find(files, op_file, &SourceFile::name) == files.end())
      reader.fail(1, "no op.toml in the folder", "one");
    document = parse_toml(reader.file(), file_of(files, std::string(op_file)).text);
    read_op(reader, document, op);
  });
  reader.attempt([&] {
    for (const std::string& each : implementation_names(reader, document, files))
      read_implementation_file(file_of(files, each + std::string(toml_suffix)), each, op_is_read, op, mistakes);
  });
  if (mistakes != nullptr) keep_once(*mistakes);
  op.tag = tag_of(op);
  return op;
}

}  // namespace

Op parse_op(std::string_view name, std::string_view folder, std::span<const SourceFile> files) {
  return read_folder(name, folder, files, nullptr);
}

Op parse_op(std::string_view name, std::string_view folder, std::span<const SourceFile> files,
            std::vector<Mistake>& mistakes) {
  return read_folder(name, folder, files, &mistakes);
}

}  // namespace kiln::manifest
