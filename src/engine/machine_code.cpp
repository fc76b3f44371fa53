#include "engine/machine_code.hpp"

#include <fmt/format.h>

#include "jit/executable.hpp"

namespace kiln::engine {
namespace {

jit::Specialisation code_of(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
                            const std::string& arch) {
  const auto frame = manifest::make_frame(op, answer.implementation, answer.at, device, answer.config);
  return jit::specialise(op, *answer.implementation, frame, arch);
}

struct CodeAt {
  std::size_t layer = 0;
  std::string compiler;
};

std::optional<CodeAt> search(store::Layers& layers, const jit::Specialisation& code,
                             const std::vector<std::string>& compilers) {
  for (const std::string& compiler : compilers) {
    const auto found = jit::find_by_key(code, compiler, [&](const auto& key) { return layers.find_cubin(key); });
    if (found) return CodeAt{found->layer, compiler};
  }
  return std::nullopt;
}

/// The compilers whose code a launch here takes, in the order in which it asks for them.
std::vector<std::string> compilers_served(const Answer& answer, tune::Cubins& cubins) {
  std::vector<std::string> compilers;
  if (!answer.compiler.empty() && cubins.accepts(answer.compiler)) compilers.push_back(answer.compiler);
  if (cubins.can_compile()) {
    compilers.push_back(jit::compiler_identity());
  } else {
    for (std::string& each : cubins.layers().compilers()) compilers.push_back(std::move(each));
  }
  return compilers;
}

std::string why_none(const jit::Specialisation& code, tune::Cubins& cubins) {
  store::Layers& layers = cubins.layers();
  if (const auto other = search(layers, code, layers.compilers()))
    return fmt::format("{} has it by {}, which is not the NVRTC here", name_of(layers.layers()[other->layer]),
                       other->compiler);
  if (const auto at = tune::untrusted_layer_with(layers, code)) {
    const store::Layer& layer = layers.layers()[*at];
    return fmt::format("{} has it and may not supply it ({})", name_of(layer), layer.trust);
  }
  return "no file has it";
}

}  // namespace

std::optional<std::size_t> layer_with_code(const manifest::Op& op, const Answer& answer,
                                           const manifest::DeviceFacts& device, const std::string& arch,
                                           store::Layers& layers) {
  if (!answer.implementation->has_kernels()) return std::nullopt;
  const auto found = search(layers, code_of(op, answer, device, arch), layers.compilers());
  return found ? std::optional(found->layer) : std::nullopt;
}

std::optional<std::size_t> untrusted_layer_with_code(const manifest::Op& op, const Answer& answer,
                                                     const manifest::DeviceFacts& device, const std::string& arch,
                                                     const store::Layers& layers) {
  if (!answer.implementation->has_kernels()) return std::nullopt;
  return tune::untrusted_layer_with(layers, code_of(op, answer, device, arch));
}

MachineCode machine_code_of(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
                            const std::string& arch, tune::Cubins& cubins) {
  if (!answer.implementation->has_kernels()) return {true, "none is needed: the library has it"};
  const jit::Specialisation code = code_of(op, answer, device, arch);
  if (const auto found = search(cubins.layers(), code, compilers_served(answer, cubins)))
    return {true, fmt::format("{} has it: no compile", name_of(cubins.layers().layers()[found->layer]))};
  return {false, fmt::format("{}; {}", why_none(code, cubins),
                             cubins.can_compile() ? "it is compiled at the first launch"
                                                  : "there is no NVRTC here to compile it: such a launch fails")};
}

}  // namespace kiln::engine
