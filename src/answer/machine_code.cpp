#include "answer/machine_code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jit/executable.hpp"

namespace kiln::answer {
namespace {

std::string why_none(CodeLookup& code, const store::Layers& layers) {
  if (const auto at = code.find([&](const auto& each) { return untrusted_layer_with(layers, each); })) {
    const store::Layer& layer = layers.layers()[*at];
    return fmt::format("{} has it and may not supply it ({})", name_of(layer), layer.trust);
  }
  return "no file has it";
}

}  // namespace

CodeLookup::CodeLookup(const manifest::Site& site, const Answer& answer, std::function<std::string()> arch)
    : timed_(jit::specialise(site, answer, answer.at, jit::target_arch(site.device->sm()))),
      compiler_(answer.compiler),
      arch_(std::move(arch)) {}

const jit::Specialisation& CodeLookup::here() {
  if (!here_) {
    here_ = timed_;
    here_->arch = arch_();
  }
  return *here_;
}

const jit::Specialisation& CodeLookup::of(const KeyedCubin& cubin) const {
  return here_ && jit::cubin_key(timed_, cubin.compiler) != cubin.key ? *here_ : timed_;
}

std::optional<KeyedCubin> CodeLookup::find_serving(Cubins& cubins, store::Counters* met) {
  return find([&](const jit::Specialisation& code) { return cubins.find_serving(code, compiler_, met); });
}

bool CodeLookup::is_held(Cubins& cubins) {
  return find([&](const jit::Specialisation& code) { return cubins.holds(code, compiler_); });
}

bool CodeLookup::is_passed_over(Cubins& cubins) {
  return find([&](const jit::Specialisation& code) { return cubins.passes_over(code, compiler_); });
}

void leave_servable(Resolution& resolution, const std::string& arch, Cubins& cubins) {
  const auto needs_code = [](const Answer& each) {
    return each.origin == Origin::nearest || each.origin == Origin::model;
  };
  if (std::ranges::none_of(resolution.answers, needs_code) || cubins.can_compile()) return;
  std::string left_out;
  std::erase_if(resolution.answers, [&](const Answer& each) {
    if (!needs_code(each) || CodeLookup(resolution.bucket, each, arch).find_serving(cubins)) return false;
    if (left_out.empty()) left_out = each.why;
    return true;
  });
  if (left_out.empty() || resolution.answers.empty() || resolution.answers.front().origin != Origin::default_) return;
  resolution.answers.front().why = fmt::format(
      "no file has machine code of what would stand in ({}), and there is no NVRTC; the op's first legal default",
      left_out);
}

std::vector<jit::Specialisation> code_needed(const Resolution& resolution, const std::string& arch) {
  std::vector<jit::Specialisation> result;
  std::vector<manifest::Variant> seen;
  for (const Answer& each : resolution.answers) {
    if (!each.implementation->has_kernels() || std::ranges::find(seen, each) != seen.end()) continue;
    seen.push_back(each);
    result.push_back(jit::specialise(resolution.bucket, each, each.at, arch));
  }
  return result;
}

std::optional<std::size_t> layer_with_code(const manifest::Site& site, const Answer& answer, const std::string& arch,
                                           store::Layers& layers) {
  CodeLookup code(site, answer, arch);
  if (!code.is_needed()) return std::nullopt;
  return code.find([&](const jit::Specialisation& each) -> std::optional<std::size_t> {
    for (const std::string& compiler : layers.compilers())
      if (const auto found = jit::find_by_key(each, compiler, [&](const auto& key) { return layers.find_cubin(key); }))
        return found->layer;
    return std::nullopt;
  });
}

std::optional<std::size_t> untrusted_layer_with_code(const manifest::Site& site, const Answer& answer,
                                                     const std::string& arch, const store::Layers& layers) {
  CodeLookup code(site, answer, arch);
  if (!code.is_needed()) return std::nullopt;
  return code.find([&](const jit::Specialisation& each) { return untrusted_layer_with(layers, each); });
}

MachineCode machine_code_of(const manifest::Site& site, const Answer& answer, const std::string& arch, Cubins& cubins) {
  CodeLookup code(site, answer, arch);
  if (!code.is_needed()) return {true, "none is needed: the library has it", {}};
  const std::string& own = cubins.own_compiler();
  if (const auto found = code.find_serving(cubins)) {
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
