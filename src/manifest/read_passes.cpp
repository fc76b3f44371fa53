// Reads [[pass]]: the name, geometry and arguments of one launch.
#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/kernel_name.hpp"
#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

PassModel read_pass_model(const ManifestReader& reader, const TomlValue& section, const Op& op,
                          const Symbols& symbols) {
  constexpr std::string_view where = "[pass.model]";
  reader.check_keys(section, where,
                    {"operations", "unit", "read_bytes", "traffic_bytes", "written_bytes", "memory_bytes",
                     "shared_bytes", "bytes_in_flight", "round_trips", "registers", "busy_blocks"});
  PassModel model;
  const auto read = [&](std::string_view key, std::optional<Expression>& into) {
    if (const TomlValue* value = section.find(key))
      reader.attempt(
          [&] { into = reader.expression(*value, "'" + std::string(key) + "'", symbols, op, Known::every_rank); });
  };
  read("operations", model.operations);
  read("read_bytes", model.read_bytes);
  read("traffic_bytes", model.traffic_bytes);
  read("written_bytes", model.written_bytes);
  read("memory_bytes", model.memory_bytes);
  read("shared_bytes", model.shared_bytes);
  read("bytes_in_flight", model.bytes_in_flight);
  read("round_trips", model.round_trips);
  read("registers", model.registers);
  read("busy_blocks", model.busy_blocks);
  if (const TomlValue* unit = section.find("unit"))
    reader.attempt([&] {
      model.unit = static_cast<Unit>(reader.one_of(*unit, "'unit'", {"instruction", "fma", "mma", "wgmma"}));
    });
  return model;
}

// The names that a pass's expressions and arguments may use.
struct Scope {
  const ManifestReader& reader;
  const Op& op;
  const Symbols& symbols;
  std::span<const Workspace> workspaces;
  std::string_view untimed;  // "[prepare]" or "the reference"; empty for an implementation

  [[nodiscard]] Expression expression(const TomlValue& value, std::string_view what, Known known) const {
    return reader.expression(value, what, symbols, op, known);
  }
};

template <typename Range>
int index_of(const Range& range, std::string_view name) {
  for (std::size_t i = 0; i < range.size(); ++i) {
    if (range[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::array<Expression, 3> read_triple(const Scope& scope, const TomlValue* value, const std::string& what,
                                      Known known) {
  std::array<Expression, 3> triple = {Expression::constant(1), Expression::constant(1), Expression::constant(1)};
  if (value == nullptr) return triple;
  const auto& items = scope.reader.list(*value, what);
  if (items.empty() || items.size() > triple.size()) {
    scope.reader.fail(value->line, fmt::format("{} entries in {}", items.size(), what), "1 to 3: x, y, z");
  }
  for (std::size_t i = 0; i < items.size(); ++i)
    scope.reader.attempt([&] { triple[i] = scope.expression(items[i], what, known); });
  return triple;
}

void read_kernel(const Scope& scope, const TomlValue& value, Pass& pass) {
  const std::string& text = scope.reader.text(value, "a kernel name");
  try {
    KernelName name = parse_kernel_name(text, scope.symbols);
    for (const Expression& placeholder : name.placeholders) {
      scope.reader.check_known(placeholder, "the placeholder", scope.symbols, scope.op, Known::plan, value.line);
    }
    pass.kernel = text;
    pass.name = std::move(name);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_expression) throw;
    throw Error(ErrorKind::bad_manifest, fmt::format("{}: {}", scope.reader.place_of(value.line), error.what()));
  }
}

Argument read_named_argument(const Scope& scope, const TomlValue& value) {
  const std::string& name = value.text;
  Argument argument;
  const auto is = [&](ArgumentKind kind, int index) {
    argument.kind = kind;
    argument.index = index;
    return index >= 0;
  };
  if (is(ArgumentKind::tensor, index_of(scope.op.tensors, name)) ||
      is(ArgumentKind::workspace, index_of(scope.workspaces, name)) ||
      is(ArgumentKind::axis, index_of(scope.op.axes, name)) ||
      is(ArgumentKind::runtime, index_of(scope.op.runtime, name))) {
    if (argument.kind != ArgumentKind::workspace) return argument;
    const Workspace& workspace = scope.workspaces[static_cast<std::size_t>(argument.index)];
    if (workspace.symmetric)
      scope.reader.fail(value.line, fmt::format("the symmetric workspace '{}' by name", name),
                        fmt::format("{{ peers = \"{}\" }}: it has an address on each rank", name));
    if (workspace.zeroed) argument.kind = ArgumentKind::zeroed_workspace;
    return argument;
  }
  if (scope.untimed == prepare_section && (name == seed_name || name == case_name)) {
    argument.kind = ArgumentKind::expression;
    argument.value = Expression::parse(name, scope.symbols);
    argument.type = name == seed_name ? RuntimeType::u64 : RuntimeType::i32;
    return argument;
  }
  if (scope.symbols.find(name) || scope.symbols.find_term(name) != nullptr) {
    scope.reader.fail(
        value.line, fmt::format("{} as an argument by name", quote(name)),
        fmt::format("{{ value = \"{}\", type = \"i32\" }} for what is no tensor, workspace, axis or run-time value",
                    name));
  }
  std::vector<std::string> known;
  for (const Tensor& each : scope.op.tensors) known.push_back(each.name);
  for (const Workspace& each : scope.workspaces) known.push_back(each.name);
  for (const Axis& each : scope.op.axes) known.push_back(each.name);
  for (const Runtime& each : scope.op.runtime) known.push_back(each.name);
  scope.reader.fail(value.line, fmt::format("the unknown argument {}{}", quote(name), did_you_mean(name, known)),
                    one_of(known));
}

/// Reads a list of sizes of a TMA argument, one for each dimension of its view. A constant must lie between 1 and
/// `most`.
std::vector<Expression> read_view_sizes(const Scope& scope, const TomlValue& list, std::string_view key,
                                        std::int64_t most) {
  const std::string what = fmt::format("'{}' of a TMA argument", key);
  std::vector<Expression> sizes;
  for (const TomlValue& each : scope.reader.list(list, what)) {
    const Expression& size = sizes.emplace_back(scope.expression(each, what, Known::launch));
    const auto number = size.constant_value();
    if (number && (*number < 1 || *number > most))
      scope.reader.fail(each.line, fmt::format("{} in {}", *number, what), fmt::format("1 to {}", most));
  }
  return sizes;
}

void check_rank(const ManifestReader& reader, const TomlValue& list, std::string_view key, std::size_t entries,
                std::size_t rank, const std::string& of) {
  if (entries != rank)
    reader.fail(list.line, fmt::format("{} entries in '{}'", entries, key),
                fmt::format("{}, one for each dimension of {}", rank, of));
}

/// Reads the shape and strides that the descriptor shows, which are the tensor's own where they are not given.
void read_shown_view(const Scope& scope, const TomlValue& value, const Tensor& tensor, Argument& argument) {
  const ManifestReader& reader = scope.reader;
  const TomlValue* const shape = value.find("shape");
  const TomlValue* const strides = value.find("strides");
  argument.shape = shape != nullptr ? read_view_sizes(scope, *shape, "shape", most_tensor_map_size) : tensor.shape;
  argument.strides =
      strides != nullptr ? read_view_sizes(scope, *strides, "strides", most_tensor_map_stride) : tensor.strides;
  const std::size_t rank = argument.shape.size();
  if (shape != nullptr && (rank < 1 || rank > static_cast<std::size_t>(max_tensor_map_rank)))
    reader.fail(shape->line, fmt::format("{} entries in 'shape' of a TMA argument", rank),
                fmt::format("1 to {}", max_tensor_map_rank));
  if (strides == nullptr && rank != argument.strides.size())
    reader.fail(shape->line,
                fmt::format("a view of rank {} without 'strides' over '{}', which has rank {}", rank, tensor.name,
                            argument.strides.size()),
                "'strides', one for each dimension of the view");
  if (strides == nullptr) return;
  check_rank(reader, *strides, "strides", argument.strides.size(), rank, "the view");
  const auto innermost = argument.strides.back().constant_value();
  if (innermost && *innermost != 1)
    reader.fail(strides->line, fmt::format("{} as the innermost stride of a TMA argument", *innermost), "1");
}

/// Reads which half of the team's memory a descriptor of a symmetric workspace shows. Others have no halves.
int read_half(const ManifestReader& reader, const TomlValue& value, const Workspace& workspace) {
  const TomlValue* const half = value.find("half");
  if (!workspace.symmetric) {
    if (half == nullptr) return -1;
    reader.fail(half->line, fmt::format("'half' of a TMA argument over workspace '{}'", workspace.name),
                "it for symmetric workspaces alone");
  }
  const std::string where = fmt::format("a TMA argument over the symmetric workspace '{}'", workspace.name);
  const std::int64_t number = reader.integer(reader.required(value, where, "half"), "'half'", 0);
  if (number > 1) reader.fail(half->line, fmt::format("half = {} of a TMA argument", number), "0 or 1");
  return static_cast<int>(number);
}

/// Reads the view of a workspace, which has no dtype and no shape of its own.
void read_workspace_view(const Scope& scope, const TomlValue& value, const Workspace& workspace, Argument& argument) {
  const ManifestReader& reader = scope.reader;
  argument.half = read_half(reader, value, workspace);
  const std::string where = fmt::format("a TMA argument over workspace '{}'", workspace.name);
  argument.element = read_dtype(reader, reader.required(value, where, "dtype"), scope.op, workspace.name);
  Tensor own;
  own.name = workspace.name;
  own.shape = read_view_sizes(scope, reader.required(value, where, "shape"), "shape", most_tensor_map_size);
  if (!own.shape.empty()) own.strides = dense_strides(own.shape, scope.symbols);
  read_shown_view(scope, value, own, argument);
}

/// Returns the names of tensors, then of workspaces.
std::vector<std::string> names_in_memory(const Scope& scope) {
  std::vector<std::string> names;
  for (const Tensor& each : scope.op.tensors) names.push_back(each.name);
  for (const Workspace& each : scope.workspaces) names.push_back(each.name);
  return names;
}

/// Reads the tensor or workspace that the descriptor shows, and its view.
Argument read_shown(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  const std::size_t shown =
      reader.one_of(*value.find("tma"), "the tensor or workspace of a TMA argument", names_in_memory(scope));
  Argument argument;
  if (shown >= scope.op.tensors.size()) {
    argument.kind = ArgumentKind::workspace_map;
    argument.index = static_cast<int>(shown - scope.op.tensors.size());
    read_workspace_view(scope, value, scope.workspaces[static_cast<std::size_t>(argument.index)], argument);
    return argument;
  }
  const Tensor& tensor = scope.op.tensors[shown];
  if (const TomlValue* dtype = value.find("dtype"))
    reader.fail(dtype->line, fmt::format("'dtype' of a TMA argument over tensor '{}'", tensor.name), "its own");
  if (const TomlValue* half = value.find("half"))
    reader.fail(half->line, fmt::format("'half' of a TMA argument over tensor '{}'", tensor.name),
                "it for symmetric workspaces alone");
  if (tensor.per_rank && !scope.untimed.empty())
    reader.fail(value.line, fmt::format("a TMA argument over '{}' in {}", tensor.name, scope.untimed),
                fmt::format("\"{}\", the address of all ranks' parts", tensor.name));
  argument.kind = ArgumentKind::tensor_map;
  argument.index = static_cast<int>(shown);
  read_shown_view(scope, value, tensor, argument);
  return argument;
}

Argument read_tensor_map(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  reader.check_keys(value, "a TMA argument",
                    {"tma", "half", "dtype", "shape", "strides", "unbounded", "box", "swizzle", "when"});
  Argument argument = read_shown(scope, value);
  argument.unbounded = reader.boolean_or(value, "unbounded", false);
  const TomlValue& box = reader.required(value, "a TMA argument", "box");
  argument.box = read_view_sizes(scope, box, "box", most_tensor_map_box);
  check_rank(reader, box, "box", argument.box.size(), argument.shape.size(),
             value.find("shape") != nullptr ? "the view" : "'" + value.find("tma")->text + "'");
  if (const TomlValue* swizzle = value.find("swizzle"))
    argument.swizzle = scope.expression(*swizzle, "'swizzle'", Known::plan);
  const auto bytes = argument.swizzle.constant_value();
  if (bytes && *bytes != 0 && *bytes != 32 && *bytes != 64 && *bytes != 128) {
    reader.fail(value.line, fmt::format("{} as 'swizzle'", *bytes), "0, 32, 64 or 128 bytes");
  }
  if (const TomlValue* when = value.find("when")) argument.when = scope.expression(*when, "'when'", Known::plan);
  return argument;
}

Argument read_length(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  reader.check_keys(value, "a length argument", {"length"});
  if (!scope.untimed.empty())
    reader.fail(value.line, fmt::format("'length' in a pass of {}", scope.untimed),
                "the axis by name: its size is given there");
  std::vector<std::string> axes;
  for (const Axis& each : scope.op.axes)
    if (each.on_device) axes.push_back(each.name);
  const TomlValue& name = *value.find("length");
  if (axes.empty()) reader.fail(value.line, "a length argument", "an axis with on_device = true in op.toml");
  Argument argument;
  argument.kind = ArgumentKind::length;
  argument.index = index_of(scope.op.axes, axes[reader.one_of(name, "the axis of a length argument", axes)]);
  return argument;
}

Argument read_report(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  reader.check_keys(value, "a report argument", {"report"});
  std::vector<std::string> names;
  for (const Axis& each : scope.op.axes) names.push_back(each.name);
  for (const int each : scope.op.index_tensors())
    names.push_back(scope.op.tensors[static_cast<std::size_t>(each)].name);
  Argument argument;
  argument.kind = ArgumentKind::report;
  argument.index = static_cast<int>(
      reader.one_of(*value.find("report"), "the axis, or tensor of integers, of a report argument", names));
  if (argument.index >= max_axes)
    reader.fail(value.line, fmt::format("a report of the tensor '{}'", names[static_cast<std::size_t>(argument.index)]),
                fmt::format("one of the first {} axes and tensors of integers", max_axes));
  return argument;
}

/// Reads { peers = "WORKSPACE" } or { team = true }.
Argument read_team_argument(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  const TomlValue* const peers = value.find("peers");
  const std::string_view key = peers != nullptr ? "peers" : "team";
  reader.check_keys(value, fmt::format("a {} argument", key), {key});
  if (!scope.untimed.empty())
    reader.fail(value.line, fmt::format("'{}' in a pass of {}", key, scope.untimed), "it in implementations alone");
  if (!scope.op.is_of_team())
    reader.fail(value.line, fmt::format("a {} argument", key), "an axis with team = true in op.toml");
  Argument argument;
  argument.kind = ArgumentKind::team;
  if (peers == nullptr) {
    if (!reader.boolean(*value.find("team"), "'team'"))
      reader.fail(value.line, "team = false as an argument", "team = true, or no such argument");
    return argument;
  }
  std::vector<std::string> symmetric;
  for (const Workspace& each : scope.workspaces)
    if (each.symmetric) symmetric.push_back(each.name);
  if (symmetric.empty()) reader.fail(value.line, "a peers argument", "a workspace with symmetric = true");
  argument.kind = ArgumentKind::peers;
  argument.index =
      index_of(scope.workspaces, symmetric[reader.one_of(*peers, "the workspace of a peers argument", symmetric)]);
  return argument;
}

/// Reads { view = "TENSOR" }, which has the tensor's strides that are no constants, unless the manifest gives others.
Argument read_view(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  reader.check_keys(value, "a view argument", {"view", "strides", "when"});
  const std::size_t tensors = scope.op.tensors.size();
  const std::size_t viewed =
      reader.one_of(*value.find("view"), "the tensor or workspace of a view argument", names_in_memory(scope));
  const TomlValue* const strides = value.find("strides");
  Argument argument;
  argument.kind = viewed < tensors ? ArgumentKind::view : ArgumentKind::workspace_view;
  argument.index = static_cast<int>(viewed < tensors ? viewed : viewed - tensors);
  if (strides != nullptr)
    for (const TomlValue& each : reader.list(*strides, "'strides' of a view argument"))
      argument.strides.push_back(scope.expression(each, "'strides' of a view argument", Known::launch));
  else if (viewed < tensors)
    argument.strides = scope.op.tensors[viewed].open_strides();
  else
    reader.fail(value.line, "a view of a workspace without 'strides'", "them, as many as the kernel takes");
  if (viewed >= tensors && scope.workspaces[viewed - tensors].symmetric)
    reader.fail(value.line, fmt::format("a view of the symmetric workspace '{}'", value.find("view")->text),
                "{ peers = ... }: it has an address on each rank");
  if (const TomlValue* when = value.find("when")) argument.when = scope.expression(*when, "'when'", Known::plan);
  return argument;
}

Argument read_argument(const Scope& scope, const TomlValue& value);

bool may_be_packed(const Argument& argument) {
  switch (argument.kind) {
    case ArgumentKind::tensor:
    case ArgumentKind::view:
    case ArgumentKind::workspace_view:
    case ArgumentKind::axis:
    case ArgumentKind::runtime:
    case ArgumentKind::workspace:
    case ArgumentKind::zeroed_workspace:
    case ArgumentKind::expression: return true;
    default: return false;
  }
}

/// Reads { pack = [...] }.
Argument read_pack(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  reader.check_keys(value, "a pack argument", {"pack"});
  const TomlValue& list = *value.find("pack");
  Argument argument;
  argument.kind = ArgumentKind::pack;
  for (const TomlValue& each : reader.list(list, "'pack'")) {
    argument.members.push_back(read_argument(scope, each));
    if (!may_be_packed(argument.members.back()))
      reader.fail(each.line, "such an argument in 'pack'",
                  "tensors, views, workspaces, axes, run-time values and values; give the others beside it");
  }
  if (argument.members.empty()) reader.fail(list.line, "an empty 'pack'", "one member or more");
  return argument;
}

Argument read_argument(const Scope& scope, const TomlValue& value) {
  if (value.kind == TomlValue::Kind::text) return read_named_argument(scope, value);
  if (value.find("pack") != nullptr) return read_pack(scope, value);
  if (value.find("view") != nullptr) return read_view(scope, value);
  if (value.find("tma") != nullptr) return read_tensor_map(scope, value);
  if (value.find("length") != nullptr) return read_length(scope, value);
  if (value.find("report") != nullptr) return read_report(scope, value);
  if (value.find("peers") != nullptr || value.find("team") != nullptr) return read_team_argument(scope, value);
  constexpr std::string_view where = "an argument";
  scope.reader.check_keys(value, where,
                          {"value", "type", "view", "tma", "half", "dtype", "shape", "strides", "unbounded", "box",
                           "swizzle", "when", "length", "report", "peers", "team", "pack"});
  Argument argument;
  argument.kind = ArgumentKind::expression;
  argument.value =
      scope.expression(scope.reader.required(value, where, "value"), "the value of an argument", Known::launch);
  const TomlValue& type = scope.reader.required(value, where, "type");
  argument.type = read_runtime_type(scope.reader, type);
  if (argument.type == RuntimeType::f32 || argument.type == RuntimeType::f64) {
    scope.reader.fail(type.line, quote(type.text) + " as the type of an expression", "'i32', 'i64', 'u32' or 'u64'");
  }
  return argument;
}

Expression read_programmatic(const Scope& scope, const TomlValue& value) {
  if (value.kind == TomlValue::Kind::boolean) return Expression::constant(value.boolean ? 1 : 0);
  if (value.kind != TomlValue::Kind::text)
    scope.reader.fail(value.line, fmt::format("{} as 'programmatic'", value.described()),
                      "true, false or an expression");
  return scope.expression(value, "'programmatic'", Known::plan);
}

void read_arguments(const Scope& scope, const TomlValue& list, Pass& pass) {
  const ManifestReader& reader = scope.reader;
  for (const TomlValue& each : reader.list(list, "'args'"))
    reader.attempt([&] { pass.arguments.push_back(read_argument(scope, each)); });
  check_count(reader, list.line, pass.arguments.size(), max_arguments, "arguments");
  const auto maps = std::count_if(pass.arguments.begin(), pass.arguments.end(), [](const Argument& argument) {
    return argument.kind == ArgumentKind::tensor_map || argument.kind == ArgumentKind::workspace_map;
  });
  check_count(reader, list.line, static_cast<std::size_t>(maps), max_tensor_maps, "TMA arguments");
  std::size_t words = 0;
  for (const Argument& each : pass.arguments) words += each.words();
  check_count(reader, list.line, words, max_argument_words, "words of arguments, those of views and packs among them");
}

Pass read_pass(const Scope& scope, const TomlValue& value) {
  const ManifestReader& reader = scope.reader;
  constexpr std::string_view where = "a pass";
  reader.check_keys(
      value, where,
      {"kernel", "grid", "block", "cluster", "shared", "when", "args", "cooperative", "programmatic", "model"});
  Pass pass;
  pass.line = value.line;
  const auto optional = [&](std::string_view key, const auto& read) {
    if (const TomlValue* found = value.find(key)) reader.attempt([&] { read(*found); });
  };
  reader.attempt([&] { read_kernel(scope, reader.required(value, where, "kernel"), pass); });
  reader.attempt(
      [&] { pass.grid = read_triple(scope, &reader.required(value, where, "grid"), "the grid", Known::launch); });
  reader.attempt(
      [&] { pass.block = read_triple(scope, &reader.required(value, where, "block"), "the block", Known::plan); });
  reader.attempt([&] { pass.cluster = read_triple(scope, value.find("cluster"), "the cluster", Known::plan); });
  optional("shared", [&](const TomlValue& each) { pass.shared = scope.expression(each, "'shared'", Known::plan); });
  optional("when", [&](const TomlValue& each) { pass.when = scope.expression(each, "'when'", Known::plan); });
  reader.attempt([&] { read_arguments(scope, reader.required(value, where, "args"), pass); });
  reader.attempt([&] { pass.cooperative = reader.boolean_or(value, "cooperative", false); });
  optional("programmatic", [&](const TomlValue& each) { pass.programmatic = read_programmatic(scope, each); });
  optional("model", [&](const TomlValue& each) {
    if (!scope.untimed.empty())
      reader.fail(each.line, fmt::format("'model' in a pass of {}", scope.untimed), "none: it is never timed");
    pass.model = read_pass_model(reader, each, scope.op, scope.symbols);
  });
  return pass;
}

}  // namespace

std::vector<Pass> read_passes(const ManifestReader& reader, const TomlValue& table, std::string_view where,
                              const Op& op, const Symbols& symbols, std::span<const Workspace> workspaces) {
  const std::string_view untimed = where == "[reference]" ? "the reference" : where == prepare_section ? where : "";
  const Scope scope{reader, op, symbols, workspaces, untimed};
  const TomlValue& list = reader.required(table, where, "pass");
  std::vector<Pass> passes;
  for (const TomlValue& each : reader.list(list, fmt::format("'pass' of {}", where)))
    reader.attempt([&] { passes.push_back(read_pass(scope, each)); });
  if (list.items.empty()) reader.fail(list.line, fmt::format("no pass in {}", where), "one or more");
  return passes;
}

}  // namespace kiln::manifest
