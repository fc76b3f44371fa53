#include "jit/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "jit/cubin_sections.hpp"
#include "jit/launch_form.hpp"
#include "kiln/error.hpp"
#include "team/protocol.hpp"

namespace kiln::jit {
namespace {

/// Attributes of .nv.info, as cuobjdump -elf names them.
enum class InfoAttribute : std::uint8_t {
  kparam_info = 0x17,      // u32 index, u16 ordinal, u16 offset, u32 whose upper 14 bits are the size
  kparam_info_v2 = 0x45,   // u32 index, u16 ordinal, u16 offset, u16 size: kernels with large parameters
  cbank_param_size = 0x19  // u16: bytes of all parameters
};

struct Parameter {
  std::int64_t offset, bytes;
};

std::string argument_name(const manifest::Op& op, const manifest::Implementation* implementation,
                          const manifest::Argument& argument) {
  const auto index = static_cast<std::size_t>(argument.index);
  switch (argument.kind) {
    case manifest::ArgumentKind::tensor: return op.tensors[index].name;
    case manifest::ArgumentKind::view: return "view = " + op.tensors[index].name;
    case manifest::ArgumentKind::workspace_view: return "view = " + implementation->workspaces[index].name;
    case manifest::ArgumentKind::axis: return op.axes[index].name;
    case manifest::ArgumentKind::runtime: return op.runtime[index].name;
    case manifest::ArgumentKind::workspace:
    case manifest::ArgumentKind::zeroed_workspace: return implementation->workspaces[index].name;
    case manifest::ArgumentKind::expression: return argument.value.text();
    case manifest::ArgumentKind::tensor_map: return "tma = " + op.tensors[index].name;
    case manifest::ArgumentKind::length: return "length = " + op.axes[index].name;
    case manifest::ArgumentKind::report: {
      const manifest::Tensor* const tensor = op.reported_tensor(index);
      return "report = " + (tensor != nullptr ? tensor->name : op.axes[index].name);
    }
    case manifest::ArgumentKind::workspace_map: return "tma = " + implementation->workspaces[index].name;
    case manifest::ArgumentKind::peers: return "peers = " + implementation->workspaces[index].name;
    case manifest::ArgumentKind::team: return "team = true";
    case manifest::ArgumentKind::pack:
      return fmt::format("pack = {}, ...", argument_name(op, implementation, argument.members.front()));
  }
  return {};
}

std::int64_t bytes_of(manifest::RuntimeType type) {
  const bool is_wide =
      type == manifest::RuntimeType::f64 || type == manifest::RuntimeType::i64 || type == manifest::RuntimeType::u64;
  return is_wide ? 8 : 4;
}

}  // namespace

std::optional<std::vector<std::int64_t>> parameter_sizes(Bytes image, std::string_view lowered_name) {
  const Bytes info = section_of(image, ".nv.info." + std::string(lowered_name));
  if (info.empty()) return std::nullopt;
  std::map<std::uint16_t, Parameter> table;  // by ordinal
  std::int64_t all = 0;
  visit_info(info, [&](std::uint8_t which, std::uint16_t number, Bytes payload) {
    const auto attribute = static_cast<InfoAttribute>(which);
    if (attribute == InfoAttribute::cbank_param_size) all = number;
    if (payload.empty() || (attribute != InfoAttribute::kparam_info && attribute != InfoAttribute::kparam_info_v2))
      return;
    const std::int64_t bytes = attribute == InfoAttribute::kparam_info ? read_at<std::uint32_t>(payload, 8) >> 18
                                                                       : read_at<std::uint16_t>(payload, 8);
    table[read_at<std::uint16_t>(payload, 4)] = {read_at<std::uint16_t>(payload, 6), bytes};
  });
  // An unknown form yields missing ordinals, overlapping offsets or another sum.
  std::vector<std::int64_t> sizes;
  std::int64_t end = 0;
  for (const auto& [ordinal, parameter] : table) {
    if (ordinal != sizes.size() || parameter.offset < end) return std::nullopt;
    end = parameter.offset + parameter.bytes;
    sizes.push_back(parameter.bytes);
  }
  if (end != all) return std::nullopt;
  return sizes;
}

std::int64_t passed_bytes(const manifest::Op& op, const manifest::Argument& argument) {
  switch (argument.kind) {
    case manifest::ArgumentKind::runtime: return bytes_of(op.runtime[static_cast<std::size_t>(argument.index)].type);
    case manifest::ArgumentKind::expression: return bytes_of(argument.type);
    case manifest::ArgumentKind::view:
    case manifest::ArgumentKind::workspace_view:
    case manifest::ArgumentKind::pack: return 8 * static_cast<std::int64_t>(argument.words());
    case manifest::ArgumentKind::tensor_map:
    case manifest::ArgumentKind::workspace_map: return sizeof(CUtensorMap);
    case manifest::ArgumentKind::peers: return sizeof(team::PeersArgument);
    case manifest::ArgumentKind::team: return sizeof(team::TeamArgument);
    case manifest::ArgumentKind::length: return sizeof(AxisLength);
    default: return 8;  // addresses, axes, reports
  }
}

std::vector<std::string> argument_mistakes(const manifest::Op& op, const manifest::Implementation* implementation,
                                           const manifest::Pass& pass, std::span<const std::int64_t> parameters) {
  std::vector<std::string> mistakes;
  const std::size_t given = pass.arguments.size();
  for (std::size_t i = 0; i < std::min(given, parameters.size()); ++i) {
    const std::int64_t bytes = passed_bytes(op, pass.arguments[i]);
    if (bytes != parameters[i])
      mistakes.push_back(fmt::format("takes {} bytes as argument {}, and '{}' has {}", parameters[i], i + 1,
                                     argument_name(op, implementation, pass.arguments[i]), bytes));
  }
  if (given < parameters.size())
    mistakes.push_back(fmt::format("takes {} arguments, and 'args' has {}: argument {} of {} bytes is missing",
                                   parameters.size(), given, given + 1, parameters[given]));
  if (given > parameters.size())
    mistakes.push_back(fmt::format("takes {} arguments, and 'args' has {}: argument {}, '{}', is one too many",
                                   parameters.size(), given, parameters.size() + 1,
                                   argument_name(op, implementation, pass.arguments[parameters.size()])));
  return mistakes;
}

void check_arguments(const manifest::Op& op, const manifest::Implementation* implementation, const manifest::Pass& pass,
                     std::span<const std::int64_t> parameters) {
  const std::vector<std::string> mistakes = argument_mistakes(op, implementation, pass, parameters);
  if (mistakes.empty()) return;
  const std::string file = pass.line.part              ? *pass.line.part
                           : implementation != nullptr ? implementation->file
                                                       : manifest::shown_file(op, manifest::op_file);
  throw Error(ErrorKind::bad_manifest,
              fmt::format("{}:{}: the kernel {} {}; make 'args' what the kernel is declared with", file,
                          pass.line.number, pass.kernel, mistakes.front()));
}

}  // namespace kiln::jit
