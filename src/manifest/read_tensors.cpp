// Reads [tensors] and [tolerance].
#include <fmt/format.h>

#include <algorithm>

#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

/// `declares`: whether an entry may be a table that declares a run-time value, which read_strides has read.
std::vector<Expression> read_sizes(const ManifestReader& reader, const TomlValue& value, const std::string& what,
                                   const Op& op, bool declares = false) {
  std::vector<Expression> sizes;
  for (const TomlValue& each : reader.list(value, what))
    sizes.push_back(declares && each.kind == TomlValue::Kind::table
                        ? Expression::parse(stride_name(reader, each), op.symbols)
                        : reader.expression(each, what, op.symbols, op, Known::every_rank));
  if (sizes.empty() || sizes.size() > static_cast<std::size_t>(max_rank)) {
    reader.fail(value.line, fmt::format("{} entries in {}", sizes.size(), what), fmt::format("1 to {}", max_rank));
  }
  return sizes;
}

void read_fill(const ManifestReader& reader, const TomlValue& value, const Op& op, Tensor& tensor) {
  if (const TomlValue* fill = value.find("fill")) {
    tensor.fill = static_cast<Fill>(
        reader.one_of(*fill, "a fill", {"normal", "uniform", "ones", "zeros", "index", "offsets", "prepared"}));
  }
  if (const TomlValue* scale = value.find("scale")) tensor.scale = reader.real(*scale, "'scale'");
  if (const TomlValue* last = value.find("last"))
    tensor.last =
        reader.expression(*last, fmt::format("'last' of '{}'", tensor.name), op.symbols, op, Known::every_rank);
  const bool offsets = tensor.fill == Fill::offsets;
  if (offsets != tensor.last.has_value())
    reader.fail(value.line, fmt::format("'{}' {} 'last'", tensor.name, offsets ? "without" : "with"),
                "fill = \"offsets\" and 'last', what they end at, or neither");
  const bool whole = tensor.selection < 0 && (tensor.dtype == DType::i32 || tensor.dtype == DType::i64);
  if (offsets && !whole)
    reader.fail(value.line, fmt::format("offsets as the fill of '{}'", tensor.name), "a dtype of i32 or i64");
}

// The value is true, false or an expression.
void read_initialised(const ManifestReader& reader, const TomlValue& table, const Op& op, Tensor& tensor) {
  const TomlValue* value = table.find("initialised");
  if (value == nullptr) return;
  if (value->kind == TomlValue::Kind::boolean) {
    if (reader.boolean(*value, "'initialised'")) tensor.initialised = Expression::constant(1);
  } else {
    tensor.initialised =
        reader.expression(*value, fmt::format("'initialised' of '{}'", tensor.name), op.symbols, op, Known::device);
  }
  if (tensor.initialised && !tensor.output)
    reader.fail(table.line, fmt::format("'initialised' on '{}'", tensor.name), "it on outputs only");
}

// Strides must not depend on an axis whose length is on the device: memory does not move when it changes.
void check_strides(const ManifestReader& reader, const Op& op, const Tensor& tensor, const Line& line) {
  for (std::size_t axis = 0; axis < op.axes.size(); ++axis) {
    if (!op.axes[axis].on_device) continue;
    for (const Expression& stride : tensor.strides)
      if (stride.uses(static_cast<int>(axis)))
        reader.fail(line,
                    fmt::format("the stride '{}' of '{}' over axis '{}', whose length may be on the device",
                                stride.text(), tensor.name, op.axes[axis].name),
                    fmt::format("a run-time value, whose default may be '{}'", stride.text()));
  }
}

// [prepare] runs on one rank, so it cannot fill the parts of the others.
void read_per_rank(const ManifestReader& reader, const TomlValue& table, const Op& op, Tensor& tensor) {
  tensor.per_rank = reader.boolean_or(table, "per_rank", false);
  if (!tensor.per_rank) return;
  const std::string found = fmt::format("'per_rank' on '{}'", tensor.name);
  if (!op.is_of_team()) reader.fail(table.line, found, "an axis with team = true in [axes]");
  if (tensor.output) reader.fail(table.line, found + ", an output", "it on inputs only");
  if (tensor.fill == Fill::prepared)
    reader.fail(table.line, found + " with fill = \"prepared\"", "another fill: [prepare] knows one rank");
}

void read_layout(const ManifestReader& reader, const TomlValue& value, const Op& op, Tensor& tensor) {
  const std::string& name = tensor.name;
  const TomlValue& shape = reader.required(value, fmt::format("tensor '{}'", name), "shape");
  tensor.shape = read_sizes(reader, shape, fmt::format("the shape of '{}'", name), op);
  tensor.strides = dense_strides(tensor.shape, op.symbols);
  if (const TomlValue* strides = value.find("strides")) {
    std::vector<Expression> read = read_sizes(reader, *strides, fmt::format("the strides of '{}'", name), op, true);
    if (read.size() != tensor.shape.size()) {
      reader.fail(strides->line, fmt::format("{} strides of '{}'", read.size(), name),
                  fmt::format("{}, one for each dimension", tensor.shape.size()));
    }
    tensor.strides = std::move(read);
  }
  check_strides(reader, op, tensor, value.line);
}

void read_tensor(const ManifestReader& reader, const TomlValue& value, const Op& op, Tensor& tensor) {
  const std::string where = fmt::format("tensor '{}'", tensor.name);
  reader.check_keys(
      value, where,
      {"shape", "strides", "dtype", "fill", "scale", "last", "output", "initialised", "optional", "when", "per_rank"});
  reader.attempt([&] { read_layout(reader, value, op, tensor); });
  const bool is_typed = reader.attempt([&] {
    static_cast<ElementType&>(tensor) = read_dtype(reader, reader.required(value, where, "dtype"), op, tensor.name);
  });
  if (is_typed) reader.attempt([&] { read_fill(reader, value, op, tensor); });
  reader.attempt([&] { tensor.output = reader.boolean_or(value, "output", false); });
  reader.attempt([&] { read_initialised(reader, value, op, tensor); });
  reader.attempt([&] { tensor.optional = reader.boolean_or(value, "optional", false); });
  if (const TomlValue* when = value.find("when"))
    reader.attempt([&] {
      tensor.when = reader.expression(*when, fmt::format("'when' of '{}'", tensor.name), op.symbols, op, Known::device);
    });
  reader.attempt([&] { read_per_rank(reader, value, op, tensor); });
}

// Default tolerances: slightly more than the rounding of an output computed in f32 (f64 for f64).
Tolerance usual_tolerance(DType type) {
  switch (type) {
    case DType::bf16: return {8e-3, 1e-3, {}};
    case DType::f16: return {1e-3, 1e-3, {}};
    case DType::f32: return {1e-5, 1e-6, {}};
    case DType::f64: return {1e-12, 1e-13, {}};
    case DType::e4m3: return {7e-2, 1e-2, {}};
    case DType::e5m2: return {1.4e-1, 1e-2, {}};
    default: return {};
  }
}

bool is_floating(DType type) { return type <= DType::e5m2; }

double read_bound(const ManifestReader& reader, const TomlValue& table, std::string_view where, std::string_view key) {
  const TomlValue& value = reader.required(table, where, key);
  const double bound = reader.real(value, fmt::format("'{}'", key));
  if (!(bound >= 0 && bound < 1))
    reader.fail(value.line, fmt::format("{} as '{}'", value.described(), key), "0 or more and below 1");
  return bound;
}

// The value is a table, or a list of tables of which the first whose 'when' holds applies.
std::vector<Tolerance> read_tolerances(const ManifestReader& reader, const TomlValue& value, const std::string& where,
                                       const Op& op) {
  const bool one = value.kind == TomlValue::Kind::table;
  std::vector<Tolerance> read;
  for (const TomlValue& each : one ? std::vector<TomlValue>{value} : reader.list(value, where)) {
    reader.check_keys(each, where, {"relative", "absolute", "when"});
    Tolerance tolerance{read_bound(reader, each, where, "relative"), read_bound(reader, each, where, "absolute"), {}};
    if (const TomlValue* when = each.find("when"))
      tolerance.when = reader.expression(*when, fmt::format("'when' of {}", where), op.symbols, op, Known::device);
    read.push_back(std::move(tolerance));
  }
  if (read.empty() || read.back().when)
    reader.fail(value.line, fmt::format("{} with nothing for what is left", where), "a last one without 'when'");
  return read;
}

/// The types of the outputs that have no tolerance of their own.
std::vector<DType> output_types(const Op& op) {
  std::vector<DType> types;
  for (const Tensor& tensor : op.tensors) {
    if (!tensor.output || !tensor.tolerance.empty()) continue;
    if (tensor.selection < 0) {
      types.push_back(tensor.dtype);
    } else {
      std::ranges::copy(op.selections[static_cast<std::size_t>(tensor.selection)].dtypes, std::back_inserter(types));
    }
  }
  return types;
}

}  // namespace

namespace {

/// What stands for a tensor that cannot be read: one of its rank.
Tensor stand_in(const std::string& name, const TomlValue& value) {
  const TomlValue* const shape = value.find("shape");
  const std::size_t rank = shape == nullptr ? 0 : shape->items.size();
  Tensor tensor;
  tensor.name = name;
  tensor.shape.assign(std::clamp<std::size_t>(rank, 1, max_rank), Expression::constant(1));
  tensor.strides = tensor.shape;
  return tensor;
}

}  // namespace

std::vector<Expression> dense_strides(const std::vector<Expression>& shape, const Symbols& symbols) {
  std::vector<Expression> strides(shape.size(), Expression::constant(1));
  std::string text;
  for (std::size_t i = shape.size() - 1; i-- > 0;) {
    text = fmt::format("({}){}{}", shape[i + 1].text(), text.empty() ? "" : " * ", text);
    strides[i] = Expression::parse(text, symbols);
  }
  return strides;
}

ElementType read_dtype(const ManifestReader& reader, const TomlValue& value, const Op& op, std::string_view name) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    if (!op.selections[i].is_type()) continue;
    known.push_back(op.selections[i].name);
    if (op.selections[i].name == reader.text(value, "a dtype")) return {static_cast<int>(i), DType::f32};
  }
  const auto dtype = parse_dtype(reader.text(value, "a dtype"));
  if (!dtype) {
    reader.fail(value.line,
                fmt::format("{} as the dtype of '{}'{}", value.described(), name, did_you_mean(value.text, known)),
                known.empty() ? "an element type such as 'f32'" : one_of(known) + ", or an element type such as 'f32'");
  }
  return {-1, *dtype};
}

std::vector<Tensor> read_tensors(const ManifestReader& reader, const TomlValue& section, const Op& op) {
  std::vector<Tensor> tensors;
  check_count(reader, section.line, section.entries.size(), max_tensors, "tensors");
  for (const auto& [name, value] : reader.table(section, "[tensors]")) {
    reader.attempt([&, &its_name = name, &its_value = value] {
      check_free_name(reader, its_name, its_value.line, op, op.symbols);
    });
    Tensor& tensor = tensors.emplace_back(stand_in(name, value));
    reader.attempt([&, &its_value = value] { read_tensor(reader, its_value, op, tensor); });
  }
  if (!reader.has_mistakes() && std::ranges::none_of(tensors, &Tensor::output))
    reader.attempt([&] { reader.fail(section.line, "no tensor with output = true", "one or more"); });
  return tensors;
}

void read_tolerance(const ManifestReader& reader, const TomlValue* section, Op& op) {
  const auto read = [&](const std::string& name, const TomlValue& value) {
    const auto type = parse_dtype(name);
    const auto output =
        std::ranges::find_if(op.tensors, [&](const Tensor& each) { return each.output && each.name == name; });
    if (!type && output == op.tensors.end())
      reader.fail(value.line, fmt::format("{} in [tolerance]", quote(name)),
                  "an element type such as 'f32', or an output");
    (type ? op.tolerance[*type] : output->tolerance) =
        read_tolerances(reader, value, fmt::format("the tolerance of '{}'", name), op);
  };
  if (section != nullptr)
    for (const TomlEntry& each : reader.table(*section, "[tolerance]"))
      reader.attempt([&] { read(each.key, each.value); });
  for (const DType type : output_types(op)) {
    if (section != nullptr && !reader.has_mistakes() && is_floating(type) && !op.tolerance.contains(type))
      reader.attempt([&] {
        reader.fail(section->line, fmt::format("no tolerance for '{}', which an output may have", to_string(type)),
                    "one");
      });
    op.tolerance.try_emplace(type, std::vector{usual_tolerance(type)});
  }
}

}  // namespace kiln::manifest
