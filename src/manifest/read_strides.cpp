// Reads the strides that [tensors] declares: run-time values, which a launch gives with their tensor.
#include <fmt/format.h>

#include <algorithm>

#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

/// Calls `visit(tensor's entry, index of the dimension, the table)` for each declared stride, innermost first.
template <typename Visit>
void each_declared(const TomlValue& section, const Visit& visit) {
  for (const TomlEntry& tensor : section.entries) {
    const TomlValue* const strides = tensor.value.find("strides");
    if (strides == nullptr) continue;
    for (std::size_t i = strides->items.size(); i-- > 0;)
      if (strides->items[i].kind == TomlValue::Kind::table) visit(tensor, i, strides->items[i]);
  }
}

/// A text that may stand in a product.
std::string factor(const std::string& text) {
  const bool plain = std::ranges::all_of(text, [](char c) { return c == '_' || std::isalnum(c) != 0; });
  return plain ? text : "(" + text + ")";
}

/// Returns the stride of dense rows, which is the size of the next dimension times its stride. Nothing where the
/// tensor's sizes are not as many as its strides, which is refused later.
std::optional<Expression> dense_stride(const ManifestReader& reader, const TomlEntry& tensor, std::size_t dimension,
                                       const Op& op) {
  const TomlValue* const shape = tensor.value.find("shape");
  const std::vector<TomlValue>& strides = tensor.value.find("strides")->items;
  if (shape == nullptr || shape->items.size() != strides.size()) return std::nullopt;
  if (dimension + 1 == strides.size()) return Expression::constant(1);
  const auto read = [&](const TomlValue& value) {
    return reader.expression(value, fmt::format("a dense stride of '{}'", tensor.key), op.symbols, op,
                             Known::every_rank);
  };
  const Expression size = read(shape->items[dimension + 1]);
  const TomlValue& next = strides[dimension + 1];
  const Expression inner =
      next.kind == TomlValue::Kind::table ? Expression::parse(stride_name(reader, next), op.symbols) : read(next);
  if (inner.constant_value() == 1) return size;
  return Expression::parse(fmt::format("{} * {}", factor(size.text()), factor(inner.text())), op.symbols);
}

}  // namespace

const std::string& stride_name(const ManifestReader& reader, const TomlValue& declared) {
  return reader.text(reader.required(declared, "a stride", "name"), "the name of a stride");
}

void read_strides(const ManifestReader& reader, const TomlValue& section, std::vector<Runtime>& values) {
  each_declared(section, [&](const TomlEntry& tensor, std::size_t, const TomlValue& declared) {
    reader.attempt([&] {
      reader.check_keys(declared, fmt::format("a stride of '{}'", tensor.key),
                        {"name", "default", "min", "above", "max", "below", "verify"});
      Runtime runtime;
      runtime.name = stride_name(reader, declared);
      runtime.type = RuntimeType::i64;
      runtime.stride_of = static_cast<int>(&tensor - section.entries.data());
      runtime.line = declared.line.number;
      values.push_back(std::move(runtime));
    });
  });
  check_count(reader, section.line, values.size(), max_runtime, "run-time values, strides among them");
}

void read_stride_expressions(const ManifestReader& reader, const TomlValue& section, Op& op) {
  each_declared(section, [&](const TomlEntry& tensor, std::size_t dimension, const TomlValue& declared) {
    reader.attempt([&] {
      const auto found = std::ranges::find(op.runtime, stride_name(reader, declared), &Runtime::name);
      if (found == op.runtime.end()) return;
      if (declared.find("default") == nullptr) found->default_integer = dense_stride(reader, tensor, dimension, op);
      read_bounds(reader, declared, op, static_cast<std::size_t>(found - op.runtime.begin()));
    });
  });
}

}  // namespace kiln::manifest
