#include "answer/machine_code.hpp"

#include <fmt/format.h>

#include "jit/executable.hpp"

namespace kiln::answer {
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

std::string why_none(const jit::Specialisation& code, const store::Layers& layers) {
  if (const auto at = untrusted_layer_with(layers, code)) {
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
  return untrusted_layer_with(layers, code_of(op, answer, device, arch));
}

MachineCode machine_code_of(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
                            const std::string& arch, Cubins& cubins) {
  if (!answer.implementation->has_kernels()) return {true, "none is needed: the library has it", {}};
  const jit::Specialisation code = code_of(op, answer, device, arch);
  const std::string& own = cubins.own_compiler();
  if (const auto found = cubins.find_serving(code, answer.compiler)) {
    const std::string file = name_of(cubins.layers().layers()[found->layer.value()]);
    const bool is_other = !own.empty() && own != found->compiler;
    return {true,
            is_other ? fmt::format("{} has it by {}, which is not the NVRTC here ({}): no compile", file,
                                   found->compiler, own)
                     : fmt::format("{} has it: no compile", file),
            found->compiler};
  }
  return {false,
          fmt::format("{}; {}", why_none(code, cubins.layers()),
                      own.empty() ? "there is no NVRTC here to compile it: such a launch fails"
                                  : "it is compiled at the first launch"),
          {}};
}

}  // namespace kiln::answer
