// Makes an op of its folder's files.
#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/manifest_parts.hpp"
#include "manifest/problem.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

constexpr std::string_view toml_suffix = ".toml";
constexpr std::string_view source_suffix = ".cuh";

const TomlValue& section_or_empty(const TomlValue& document, std::string_view key) {
  static const TomlValue empty;
  const TomlValue* section = document.find(key);
  return section == nullptr ? empty : *section;
}

void read_op_section(const ManifestReader& reader, const TomlValue& document, Op& op) {
  const TomlValue& section = reader.required(document, "the file", "op");
  reader.check_keys(section, "[op]", {"summary", "revision", "implementations", "allowed"});
  op.summary = reader.text(reader.required(section, "[op]", "summary"), "'summary'");
  op.revision = reader.integer(reader.required(section, "[op]", "revision"), "'revision'", 1);
}

// Rules that types and choices must meet: expressions, or { when, message }. What a caller gets who gives none must
// meet them too.
void read_allowed(const ManifestReader& reader, const TomlValue& document, Op& op) {
  const TomlValue* const list = document.find("op")->find("allowed");
  if (list == nullptr) return;
  Problem by_default;
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    by_default.selections[i] = op.selections[i].default_beside(by_default);
  for (const TomlValue& each : reader.list(*list, "'allowed'")) {
    const bool is_table = each.kind == TomlValue::Kind::table;
    if (is_table) reader.check_keys(each, "a rule of 'allowed'", {"when", "message"});
    const TomlValue& when = is_table ? reader.required(each, "a rule of 'allowed'", "when") : each;
    Rule rule{read_condition(reader, when, "'allowed'", "; an implementation's 'requires' may name it", op),
              is_table ? reader.text_or(each, "message", "") : ""};
    op.allowed.push_back(std::move(rule));
    if (!is_allowed(op, by_default))
      reader.fail(when.line, fmt::format("the rule '{}', which the defaults break", op.allowed.back().when.text()),
                  "defaults that are allowed");
  }
}

// Adds symbols in the order of the frame.
void add_symbols(const ManifestReader& reader, const TomlValue& document, Op& op) {
  const auto line_of = [&](std::string_view section, const std::string& name) {
    const TomlValue* value = section_or_empty(document, section).find(name);
    return value == nullptr ? 1 : value->line;
  };
  for (const Axis& axis : op.axes) reader.add(op.symbols, {axis.name, {}, {}}, line_of("axes", axis.name));
  for (const Runtime& value : op.runtime) reader.add(op.symbols, {value.name, {}, {}}, line_of("runtime", value.name));
  for (const Selection& selection : op.selections) {
    std::vector<std::int64_t> sizes;
    for (const DType type : selection.dtypes) sizes.push_back(size_of(type));
    reader.add(op.symbols, {selection.name, selection.values, sizes},
               line_of(selection.is_type() ? "types" : "choices", selection.name));
  }
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
  read_types(reader, section_or_empty(document, "types"), op.selections);
  read_choices(reader, section_or_empty(document, "choices"), op.selections);
  check_count(reader, 1, op.selections.size(), max_selections, "types and choices");
  add_symbols(reader, document, op);
  read_policy_conditions(reader, *document.find("axes"), op);
  read_runtime_expressions(reader, section_or_empty(document, "runtime"), op);
  read_allowed(reader, document, op);
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
  op.reference_source = read_source(reader, section, "reference.cuh", op);
  op.reference_toolkit_headers = reader.boolean_or(section, "toolkit_headers", false);
  if (const TomlValue* sample = section.find("sample")) op.reference_sample = read_sample(reader, *sample, op);
  op.reference = read_passes(reader, section, "[reference]", op, op.symbols, {});
}

void read_cost(const ManifestReader& reader, const TomlValue& section, Op& op) {
  reader.check_keys(section, "[cost]", {"bytes", "flops"});
  if (const TomlValue* bytes = section.find("bytes"))
    op.cost_bytes = reader.expression(*bytes, "'bytes'", op.symbols, op, Known::every_rank);
  if (const TomlValue* flops = section.find("flops"))
    op.cost_flops = reader.expression(*flops, "'flops'", op.symbols, op, Known::every_rank);
}

// Implementations that [op] lists come first, in its order; the others follow by name.
std::vector<std::string> implementation_names(const ManifestReader& reader, const TomlValue& document,
                                              std::span<const SourceFile> files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (file.name == op_file || !file.name.ends_with(toml_suffix)) continue;
    found.push_back(file.name.substr(0, file.name.size() - toml_suffix.size()));
  }
  std::ranges::sort(found);
  const TomlValue& section = *document.find("op");
  if (found.empty()) reader.fail(section.line, "no implementation beside op.toml", "one NAME.toml or more");
  const TomlValue* listed = section.find("implementations");
  if (listed == nullptr) return found;
  auto next = found.begin();
  for (const TomlValue& each : reader.list(*listed, "'implementations'")) {
    const auto place = std::find(next, found.end(), found[reader.one_of(each, "an implementation", found)]);
    if (place == found.end()) reader.fail(each.line, quote(each.text) + " twice in 'implementations'", "each once");
    std::rotate(next, place, place + 1);
    ++next;
  }
  return found;
}

const SourceFile& file_of(std::span<const SourceFile> files, const std::string& name) {
  return *std::ranges::find(files, name, &SourceFile::name);
}

}  // namespace

std::string shown_file(const Op& op, std::string_view file) {
  return op.folder == "built-in" ? fmt::format("templates/{}/{}", op.name, file)
                                 : fmt::format("{}/{}", op.folder, file);
}

void check_count(const ManifestReader& reader, int line, std::size_t count, int limit, std::string_view what) {
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

void check_free_name(const ManifestReader& reader, const std::string& name, int line, const Op& op,
                     const Symbols& symbols, std::span<const Workspace> workspaces) {
  if (!is_identifier(name)) {
    reader.fail(line, fmt::format("the name {}", quote(name)),
                "a letter or underscore, then letters, digits and underscores");
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

Op parse_op(std::string_view name, std::string_view folder, std::span<const SourceFile> files) {
  Op op;
  op.name = name;
  op.folder = folder;
  const ManifestReader reader(shown_file(op, op_file));
  if (!is_identifier(name))
    reader.fail(1, fmt::format("a folder named {}", quote(name)), "letters, digits and underscores");
  if (std::ranges::find(files, op_file, &SourceFile::name) == files.end())
    reader.fail(1, "no op.toml in the folder", "one");
  std::vector<SourceFile> sources;
  std::ranges::copy_if(files, std::back_inserter(sources),
                       [](const SourceFile& file) { return file.name.ends_with(source_suffix); });
  std::ranges::copy_if(files, std::back_inserter(op.manifests),
                       [](const SourceFile& file) { return file.name.ends_with(toml_suffix); });
  std::ranges::sort(sources, {}, &SourceFile::name);
  op.files = std::move(sources);

  const TomlValue document = parse_toml(reader.file(), file_of(files, std::string(op_file)).text);
  reader.check_keys(
      document, "the file",
      {"op", "axes", "types", "choices", "runtime", "tensors", "tolerance", "prepare", "reference", "cost"});
  read_op_section(reader, document, op);
  read_names(reader, document, op);
  op.tensors = read_tensors(reader, reader.required(document, "the file", "tensors"), op);
  read_tolerance(reader, document.find("tolerance"), op);
  op.prepare = read_prepare(reader, document.find("prepare"), op);
  read_reference(reader, reader.required(document, "the file", "reference"), op);
  read_cost(reader, section_or_empty(document, "cost"), op);

  for (const std::string& each : implementation_names(reader, document, files)) {
    const std::string file = each + std::string(toml_suffix);
    const ManifestReader its_reader(shown_file(op, file));
    if (!is_identifier(each))
      its_reader.fail(1, fmt::format("an implementation named {}", quote(each)), "letters, digits and underscores");
    op.implementations.push_back(
        read_implementation(its_reader, parse_toml(its_reader.file(), file_of(files, file).text), each, op));
  }
  return op;
}

}  // namespace kiln::manifest
