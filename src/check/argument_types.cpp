#include "check/argument_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace kiln::check {
namespace {

using manifest::Argument;
using manifest::ArgumentKind;
using manifest::DType;

constexpr std::array<std::string_view, 6> floats = {"kiln::bf16", "kiln::f16", "kiln::e4m3",
                                                    "kiln::e5m2", "float",     "double"};

bool is_float(std::string_view name) { return std::find(floats.begin(), floats.end(), name) != floats.end(); }

/// The element type that a pass has a tensor in. A reference writes floating outputs as f32, or f64 where they are f64.
std::string_view element_of(const manifest::Op& op, const manifest::Tensor& tensor, PassOf of,
                            std::span<const std::int64_t> frame) {
  const std::string_view name = manifest::cpp_name(op.dtype_of(tensor, frame));
  return of == PassOf::reference && tensor.output && is_float(name) && name != "double" ? "float" : name;
}

/// Whether memory of `element` is surely not what a pointer to `taken` reads.
bool differs(std::string_view element, std::string_view taken) {
  if (is_float(taken)) return taken != element;
  const auto is_index = [](std::string_view name) { return name == "int" || name == "long long"; };
  return is_index(element) && is_index(taken) && element != taken;
}

/// What an argument is: its element type, or what messages call it.
struct Given {
  TypeKind kind = TypeKind::other;
  std::string name, text;
};

Given number(const std::string& name, manifest::RuntimeType type) {
  using enum manifest::RuntimeType;
  const bool is_real = type == f32 || type == f64;
  const bool is_wide = type == f64 || type == i64 || type == u64;
  return {is_real ? TypeKind::real : TypeKind::integer, name,
          fmt::format("{} of {} bits", is_real ? "a real" : "an integer", is_wide ? 64 : 32)};
}

/// What an argument is. Of a structure only the number of bytes is known.
std::optional<Given> given_by(const manifest::Op& op, const Argument& argument, PassOf of,
                              std::span<const std::int64_t> frame) {
  const auto index = static_cast<std::size_t>(argument.index);
  switch (argument.kind) {
    case ArgumentKind::tensor:
    case ArgumentKind::view: {
      const manifest::Tensor& tensor = op.tensors[index];
      const bool is_view = argument.kind == ArgumentKind::view;
      return Given{is_view ? TypeKind::view : TypeKind::pointer, tensor.name,
                   std::string(element_of(op, tensor, of, frame))};
    }
    case ArgumentKind::axis: return number(op.axes[index].name, manifest::RuntimeType::i64);
    case ArgumentKind::runtime: return number(op.runtime[index].name, op.runtime[index].type);
    case ArgumentKind::expression:
      if (argument.value.constant_value() == 0) return std::nullopt;  // 64 bits of zeros: a null pointer, or 0.0
      return number(argument.value.text(), argument.type);
    case ArgumentKind::workspace:
    case ArgumentKind::zeroed_workspace: return Given{TypeKind::pointer, "the workspace", {}};
    case ArgumentKind::report: return Given{TypeKind::pointer, "the report", {}};
    default: return std::nullopt;
  }
}

/// Whether `holds` is true of the argument, or of a member of a pack.
template <typename Holds>
bool any_within(const Argument& argument, const Holds& holds) {
  bool found = false;
  manifest::each_argument({&argument, 1}, [&](const Argument& each) { found = found || holds(each); });
  return found;
}

/// Whether the tensor or workspace may be written through the argument: nothing where the type is unknown.
std::optional<bool> may_write(const TypedPass& pass, std::size_t argument) {
  if (pass.types.size() != pass.pass->arguments.size()) return std::nullopt;
  const ParameterType& type = pass.types[argument];
  if (type.kind != TypeKind::pointer && type.kind != TypeKind::view) return std::nullopt;
  return !type.points_to_const;
}

void add_outputs(const manifest::Op& op, std::span<const std::int64_t> frame, std::span<const TypedPass> passes,
                 std::vector<UnwrittenMistake>& mistakes) {
  for (std::size_t t = 0; t < op.tensors.size(); ++t) {
    const manifest::Tensor& tensor = op.tensors[t];
    if (!tensor.output || !manifest::Op::takes_part(tensor, frame)) continue;
    std::optional<std::size_t> reader;
    bool is_written = false;
    const auto takes = [&](const Argument& argument) {
      const bool is_tensor = argument.kind == ArgumentKind::tensor || argument.kind == ArgumentKind::view ||
                             argument.kind == ArgumentKind::tensor_map;
      return is_tensor && argument.index == static_cast<int>(t);
    };
    for (const TypedPass& pass : passes)
      for (std::size_t i = 0; i < pass.pass->arguments.size(); ++i) {
        if (!any_within(pass.pass->arguments[i], takes)) continue;
        reader = pass.index;
        is_written = is_written || may_write(pass, i).value_or(true);
      }
    if (reader && !is_written)
      mistakes.push_back(
          {*reader, tensor.name,
           fmt::format("no pass can write the output '{}': each takes a pointer to const", tensor.name)});
  }
}

void add_workspaces(const manifest::Implementation& implementation, std::span<const TypedPass> passes,
                    std::vector<UnwrittenMistake>& mistakes) {
  for (std::size_t w = 0; w < implementation.workspaces.size(); ++w) {
    const manifest::Workspace& workspace = implementation.workspaces[w];
    if (workspace.zeroed || workspace.symmetric) continue;  // others wrote it
    const auto takes = [&](const Argument& each) {
      return (each.kind == ArgumentKind::workspace || each.kind == ArgumentKind::workspace_view ||
              each.kind == ArgumentKind::workspace_map) &&
             each.index == static_cast<int>(w);
    };
    const auto first = std::find_if(passes.begin(), passes.end(), [&](const TypedPass& each) {
      return std::any_of(each.pass->arguments.begin(), each.pass->arguments.end(),
                         [&](const Argument& argument) { return any_within(argument, takes); });
    });
    if (first == passes.end()) continue;
    bool is_written = false;
    for (std::size_t i = 0; i < first->pass->arguments.size(); ++i)
      if (any_within(first->pass->arguments[i], takes)) is_written = is_written || may_write(*first, i).value_or(true);
    if (!is_written)
      mistakes.push_back(
          {first->index, workspace.name,
           fmt::format("the first pass that takes the workspace '{}' takes a pointer to const, and nothing wrote it",
                       workspace.name)});
  }
}

}  // namespace

std::vector<TypeMistake> type_mistakes(const manifest::Op& op, const manifest::Pass& pass, PassOf of,
                                       std::span<const std::int64_t> frame, std::span<const ParameterType> types) {
  std::vector<TypeMistake> mistakes;
  if (types.size() != pass.arguments.size()) return mistakes;  // the widths say that one is missing
  for (std::size_t i = 0; i < types.size(); ++i) {
    const ParameterType& type = types[i];
    if (type.text.ends_with('&')) {
      mistakes.push_back(
          {i, fmt::format("takes '{}' as argument {}, a reference: a launch hands values over, so take it by value",
                          type.text, i + 1)});
      continue;
    }
    const auto given = given_by(op, pass.arguments[i], of, frame);
    if (!given || type.kind == TypeKind::other) continue;
    const bool leads_to_memory = given->kind == TypeKind::pointer || given->kind == TypeKind::view;
    const bool takes_memory = type.kind == TypeKind::pointer || type.kind == TypeKind::view;
    if (leads_to_memory && takes_memory) {
      if (given->text.empty() || !differs(given->text, type.element)) continue;
      const bool is_of_reference = of == PassOf::reference && is_float(given->text) &&
                                   op.tensors[static_cast<std::size_t>(pass.arguments[i].index)].output;
      mistakes.push_back({i, fmt::format("takes '{}' as argument {}, and {} '{}' {} '{}'", type.text, i + 1,
                                         is_of_reference ? "a reference writes" : "the elements of", given->name,
                                         is_of_reference ? "as" : "are", given->text)});
      continue;
    }
    if (leads_to_memory == takes_memory && given->kind == type.kind) continue;
    mistakes.push_back({i, fmt::format("takes '{}' as argument {}, and '{}' is {}", type.text, i + 1, given->name,
                                       leads_to_memory ? "a pointer" : given->text)});
  }
  return mistakes;
}

std::vector<UnwrittenMistake> unwritten(const manifest::Op& op, const manifest::Implementation* implementation,
                                        std::span<const std::int64_t> frame, std::span<const TypedPass> passes) {
  std::vector<UnwrittenMistake> mistakes;
  if (implementation != nullptr && implementation->is_library()) return mistakes;  // the library writes too
  add_outputs(op, frame, passes, mistakes);
  if (implementation != nullptr) add_workspaces(*implementation, passes, mistakes);
  return mistakes;
}

}  // namespace kiln::check
