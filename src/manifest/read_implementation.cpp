// Reads NAME.toml, an implementation.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

// The NVRTC options that a manifest may use. None names a file or defines a macro.
bool is_allowed_option(std::string_view option) {
  constexpr std::array<std::string_view, 4> plain = {"--use_fast_math", "-lineinfo", "--fmad=false",
                                                     "--extra-device-vectorization"};
  if (std::ranges::find(plain, option) != plain.end()) return true;
  constexpr std::string_view registers = "--maxrregcount=";
  if (!option.starts_with(registers)) return false;
  int count = 0;
  const char* end = option.data() + option.size();
  const auto [parsed, error] = std::from_chars(option.data() + registers.size(), end, count);
  return error == std::errc{} && parsed == end && count >= 16 && count <= 255;
}

std::vector<std::string> read_options(const ManifestReader& reader, const TomlValue& value) {
  std::vector<std::string> options;
  const auto read = [&](const TomlValue& each) {
    if (!is_allowed_option(reader.text(each, "an option"))) {
      reader.fail(
          each.line, fmt::format("the option {}", quote(each.text)),
          "--use_fast_math, -lineinfo, --fmad=false, --extra-device-vectorization or --maxrregcount=N (16 to 255)");
    }
    options.push_back(each.text);
  };
  for (const TomlValue& each : reader.list(value, "'options'")) reader.attempt([&] { read(each); });
  return options;
}

Parameter read_parameter(const ManifestReader& reader, const std::string& name, const TomlValue& value) {
  Parameter parameter{name, {}, false};
  const std::string what = fmt::format("a value of parameter '{}'", name);
  const auto read = [&](const TomlValue& each) {
    const std::int64_t number = reader.integer(each, what);
    if (std::ranges::find(parameter.values, number) != parameter.values.end()) {
      reader.fail(each.line, fmt::format("{} twice in parameter '{}'", number, name), "each value once");
    }
    parameter.values.push_back(number);
  };
  for (const TomlValue& each : reader.list(value, fmt::format("the values of parameter '{}'", name)))
    reader.attempt([&] { read(each); });
  if (parameter.values.empty()) reader.fail(value.line, fmt::format("no value of parameter '{}'", name), "one or more");
  return parameter;
}

/// Returns whether each parameter's name may be used.
bool read_parameters(const ManifestReader& reader, const TomlValue& section, const Op& op,
                     Implementation& implementation) {
  bool all_added = true;
  check_count(reader, section.line, section.entries.size(), max_parameters, "parameters");
  for (const auto& [name, value] : reader.table(section, "[parameters]")) {
    all_added = reader.attempt([&, &its_name = name, &its_value = value] {
      check_free_name(reader, its_name, its_value.line, op, implementation.symbols);
      reader.add(implementation.symbols, {its_name, {}, {}}, its_value.line);
    }) && all_added;
    Parameter parameter{name, {}, false};
    reader.attempt(
        [&, &its_name = name, &its_value = value] { parameter = read_parameter(reader, its_name, its_value); });
    implementation.parameters.push_back(std::move(parameter));
  }
  return all_added;
}

std::int64_t read_default_value(const ManifestReader& reader, const TomlValue& table, const Parameter& parameter) {
  const TomlValue* value = table.find(parameter.name);
  if (value == nullptr)
    reader.fail(table.line, fmt::format("no '{}' in [default]", parameter.name), "a value for each parameter");
  const std::int64_t number = reader.integer(*value, fmt::format("the default of '{}'", parameter.name));
  if (!parameter.values.empty() && std::ranges::find(parameter.values, number) == parameter.values.end()) {
    reader.fail(value->line, fmt::format("{} = {} in [default]", parameter.name, number),
                fmt::format("one of its values: {}", fmt::join(parameter.values, ", ")));
  }
  return number;
}

void read_default_config(const ManifestReader& reader, const TomlValue* section, Implementation& implementation) {
  const TomlValue none;
  const TomlValue& table = section == nullptr ? none : *section;
  for (const auto& [name, value] : reader.table(table, "[default]")) {
    if (std::ranges::find(implementation.parameters, name, &Parameter::name) != implementation.parameters.end())
      continue;
    std::vector<std::string> names;
    for (const Parameter& each : implementation.parameters) names.push_back(each.name);
    reader.attempt([&, &its_name = name, &its_value = value] {
      reader.fail(its_value.line, fmt::format("{} in [default]{}", quote(its_name), did_you_mean(its_name, names)),
                  names.empty() ? "nothing, for there are no parameters" : one_of(names));
    });
  }
  for (const Parameter& parameter : implementation.parameters) {
    std::int64_t& number = implementation.default_config.emplace_back();
    reader.attempt([&] { number = read_default_value(reader, table, parameter); });
  }
}

/// Reads `all` of [constraints] or [search]; empty when the file has no such table.
std::vector<Expression> read_conditions(const ManifestReader& reader, const TomlValue& document, std::string_view name,
                                        std::string_view what, const Op& op, const Symbols& symbols) {
  std::vector<Expression> conditions;
  const TomlValue* section = document.find(name);
  if (section == nullptr) return conditions;
  const std::string where = fmt::format("[{}]", name);
  reader.check_keys(*section, where, {"all"});
  for (const TomlValue& each : reader.list(reader.required(*section, where, "all"), "'all'"))
    reader.attempt([&] { conditions.push_back(reader.expression(each, what, symbols, op, Known::every_rank)); });
  return conditions;
}

std::vector<Expression> read_constraints(const ManifestReader& reader, const TomlValue& document, const Op& op,
                                         const Symbols& symbols) {
  return read_conditions(reader, document, "constraints", "a constraint", op, symbols);
}

/// A parameter that no condition names multiplies the number of configs, so too many of them are refused here.
void check_free_parameters(const ManifestReader& reader, const TomlValue& section, const Op& op,
                           const Implementation& implementation) {
  std::int64_t configs = 1;
  for (std::size_t i = 0; i < implementation.parameters.size(); ++i) {
    const int slot = op.first_parameter() + static_cast<int>(i);
    const auto names = [slot](const Expression& condition) { return condition.uses(slot); };
    if (std::ranges::none_of(implementation.constraints, names) && std::ranges::none_of(implementation.search, names))
      configs *= static_cast<std::int64_t>(implementation.parameters[i].values.size());
    if (configs > most_search_steps)
      reader.fail(
          section.line,
          "a search space of more than a million configs by parameters that neither [constraints] nor [search] names",
          "fewer values, or a condition");
  }
}

void read_alignment(const ManifestReader& reader, const TomlValue& section, const Op& op,
                    Implementation& implementation) {
  const auto read = [&](const std::string& name, const TomlValue& value) {
    const auto tensor = std::ranges::find(op.tensors, name, &Tensor::name);
    if (tensor == op.tensors.end()) {
      std::vector<std::string> names;
      for (const Tensor& each : op.tensors) names.push_back(each.name);
      reader.fail(value.line, fmt::format("{} in [align]{}", quote(name), did_you_mean(name, names)), one_of(names));
    }
    const Expression bytes = reader.expression(value, "an alignment", implementation.symbols, op, Known::every_rank);
    implementation.alignment.emplace_back(static_cast<int>(tensor - op.tensors.begin()), bytes);
  };
  for (const TomlEntry& each : reader.table(section, "[align]")) reader.attempt([&] { read(each.key, each.value); });
}

void check_symmetric(const ManifestReader& reader, const Op& op, const Workspace& workspace, const Line& line) {
  const std::string found = fmt::format("'symmetric' on workspace '{}'", workspace.name);
  if (!op.is_of_team()) reader.fail(line, found, "an axis with team = true in op.toml");
  if (workspace.zeroed)
    reader.fail(line, fmt::format("'zeroed' and {}", found), "one of them: all plans of a team write to its memory");
}

void read_workspace(const ManifestReader& reader, const TomlValue& value, const Op& op, const Symbols& symbols,
                    Workspace& workspace) {
  const std::string where = fmt::format("workspace '{}'", workspace.name);
  reader.check_keys(value, where, {"bytes", "zeroed", "shared", "symmetric"});
  reader.attempt([&] {
    workspace.bytes = reader.expression(reader.required(value, where, "bytes"), "'bytes'", symbols, op, Known::bucket);
  });
  reader.attempt([&] { workspace.zeroed = reader.boolean_or(value, "zeroed", false); });
  reader.attempt([&] { workspace.symmetric = reader.boolean_or(value, "symmetric", false); });
  static_cast<void>(reader.boolean_or(value, "shared", false));  // of older manifests: every workspace is
  if (workspace.symmetric) check_symmetric(reader, op, workspace, value.line);
}

void read_workspaces(const ManifestReader& reader, const TomlValue& section, const Op& op,
                     Implementation& implementation) {
  for (const TomlEntry& entry : reader.table(section, "[workspace]")) {
    reader.attempt([&] {
      check_free_name(reader, entry.key, entry.value.line, op, implementation.symbols, implementation.workspaces);
    });
    Workspace& workspace = implementation.workspaces.emplace_back(Workspace{entry.key, {}, false, false});
    reader.attempt([&] { read_workspace(reader, entry.value, op, implementation.symbols, workspace); });
  }
}

bool reads_length(const Implementation& implementation, int axis) {
  return std::ranges::any_of(implementation.passes, [axis](const Pass& pass) {
    return std::ranges::any_of(pass.arguments, [axis](const Argument& argument) {
      return argument.kind == ArgumentKind::length && argument.index == axis;
    });
  });
}

// An implementation that does not know its team could neither reach the ranks nor end a launch for them.
void check_team(const ManifestReader& reader, const Op& op, const Implementation& implementation) {
  if (!op.is_of_team()) return;
  const auto takes_team = [](const Pass& pass) {
    return std::ranges::find(pass.arguments, ArgumentKind::team, &Argument::kind) != pass.arguments.end();
  };
  if (std::ranges::none_of(implementation.passes, takes_team))
    reader.fail(implementation.passes.front().line,
                fmt::format("no argument {{ team = true }}, though axis '{}' of op.toml is a team",
                            op.axes[static_cast<std::size_t>(op.team_axis())].name),
                "it in each pass that reaches other ranks");
}

// An implementation that took the bound for the length would silently compute over padding.
void check_lengths(const ManifestReader& reader, const Op& op, const Implementation& implementation) {
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (!op.axes[i].on_device || reads_length(implementation, static_cast<int>(i))) continue;
    reader.fail(implementation.passes.front().line,
                fmt::format("no argument {{ length = \"{}\" }}, though op.toml lets axis '{}' be given on the device",
                            op.axes[i].name, op.axes[i].name),
                "it in each pass that needs the axis's size");
  }
}

/// True when the parameter in `slot` changes the kernel, its geometry, its arguments or its model.
bool shapes(const Pass& pass, int slot) {
  const auto uses = [&](const auto& expressions) {
    return std::ranges::any_of(expressions, [&](const Expression& each) { return each.uses(slot); });
  };
  const auto names = [&](const std::optional<Expression>& each) { return each && each->uses(slot); };
  const auto is_shaped = [&](const Argument& argument) {
    return argument.value.uses(slot) || uses(argument.shape) || uses(argument.strides) || uses(argument.box) ||
           argument.swizzle.uses(slot) || names(argument.when);
  };
  const auto estimated = [&](const PassModel& model) {
    return names(model.operations) || names(model.read_bytes) || names(model.traffic_bytes) ||
           names(model.written_bytes) || names(model.memory_bytes) || names(model.shared_bytes) ||
           names(model.bytes_in_flight) || names(model.round_trips) || names(model.registers) ||
           names(model.busy_blocks);
  };
  if (pass.kernel.empty()) return true;  // it could not be read, which has been told
  return uses(pass.name.placeholders) || names(pass.when) || uses(pass.grid) || uses(pass.block) ||
         uses(pass.cluster) || pass.shared.uses(slot) || std::ranges::any_of(pass.arguments, is_shaped) ||
         (pass.model && estimated(*pass.model));
}

bool is_launch_only(const Implementation& implementation, int slot) {
  const auto& passes = implementation.passes;
  return std::ranges::any_of(passes, [&](const Pass& pass) { return pass.programmatic.uses(slot); }) &&
         std::ranges::none_of(passes, [&](const Pass& pass) { return shapes(pass, slot); }) &&
         std::ranges::none_of(implementation.workspaces,
                              [&](const Workspace& each) { return each.bytes.uses(slot); }) &&
         std::ranges::none_of(implementation.alignment, [&](const auto& each) { return each.second.uses(slot); });
}

void check_sections(const ManifestReader& reader, const TomlValue& document, const Implementation& implementation,
                    bool has_kernels) {
  if (!has_kernels) {
    reader.check_keys(document, "the file of a library",
                      {"summary", "library", "requires", "constraints", "align",
                       implementation.is_collective() ? "collective" : "matmul"});
  } else if (implementation.is_library()) {
    reader.check_keys(document, "the file of a library with passes",
                      {"summary", "source", "library", "requires", "toolkit_headers", "options", "parameters", "terms",
                       "constraints", "search", "align", "default", "workspace", "pass", "collective"});
  } else {
    reader.check_keys(document, "the file",
                      {"summary", "source", "library", "requires", "toolkit_headers", "options", "parameters", "terms",
                       "constraints", "search", "align", "default", "workspace", "pass"});
  }
}

void read_kernels(const ManifestReader& reader, const TomlValue& document, const Op& op,
                  Implementation& implementation) {
  const auto section = [&](std::string_view key, const auto& read) {
    if (const TomlValue* value = document.find(key)) reader.attempt([&] { read(*value); });
  };
  reader.attempt(
      [&] { implementation.source = read_source(reader, document, fmt::format("{}.cuh", implementation.name), op); });
  reader.attempt([&] { implementation.toolkit_headers = reader.boolean_or(document, "toolkit_headers", false); });
  section("options", [&](const TomlValue& value) { implementation.options = read_options(reader, value); });
  bool all_added = true;
  section("parameters",
          [&](const TomlValue& value) { all_added = read_parameters(reader, value, op, implementation); });
  if (!all_added) reader.stop();
  section("terms", [&](const TomlValue& value) { read_terms(reader, value, op, implementation.symbols); });
  reader.attempt([&] { read_default_config(reader, document.find("default"), implementation); });
  reader.attempt([&] { implementation.constraints = read_constraints(reader, document, op, implementation.symbols); });
  reader.attempt([&] {
    implementation.search =
        read_conditions(reader, document, "search", "a condition of [search]", op, implementation.symbols);
  });
  if (!reader.has_mistakes())
    section("parameters", [&](const TomlValue& value) { check_free_parameters(reader, value, op, implementation); });
  section("align", [&](const TomlValue& value) { read_alignment(reader, value, op, implementation); });
  section("workspace", [&](const TomlValue& value) { read_workspaces(reader, value, op, implementation); });
  implementation.passes =
      read_passes(reader, document, "the file", op, implementation.symbols, implementation.workspaces);
  if (!implementation.is_library() && !reader.has_mistakes()) {
    reader.attempt([&] { check_lengths(reader, op, implementation); });
    reader.attempt([&] { check_team(reader, op, implementation); });
  }
  for (std::size_t i = 0; i < implementation.parameters.size(); ++i)
    implementation.parameters[i].launch_only =
        is_launch_only(implementation, op.first_parameter() + static_cast<int>(i));
}

}  // namespace

Implementation read_implementation(const ManifestReader& reader, const TomlValue& document, std::string_view name,
                                   const Op& op) {
  Implementation implementation;
  implementation.name = name;
  implementation.file = reader.file();
  implementation.parts = reader.parts();
  implementation.symbols = op.symbols;
  implementation.library = reader.text_or(document, "library", "");
  if (implementation.is_library()) check_library(reader, *document.find("library"), op, implementation);
  const bool has_kernels =
      !implementation.is_library() || (implementation.is_collective() && document.find("pass") != nullptr);
  check_sections(reader, document, implementation, has_kernels);
  reader.attempt([&] { implementation.summary = reader.text_or(document, "summary", ""); });
  if (const TomlValue* condition = document.find("requires")) {
    reader.attempt([&] {
      implementation.requires_ = reader.expression(*condition, "'requires'", op.symbols, op, Known::device);
      implementation.requires_text = implementation.requires_->text();
    });
  }
  if (has_kernels) {
    read_kernels(reader, document, op, implementation);
  } else {
    implementation.constraints = read_constraints(reader, document, op, implementation.symbols);
    if (const TomlValue* section = document.find("align")) read_alignment(reader, *section, op, implementation);
  }
  if (implementation.is_library()) reader.attempt([&] { read_library(reader, document, op, implementation); });
  return implementation;
}

}  // namespace kiln::manifest
