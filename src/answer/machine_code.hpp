// An answer's machine code: which files may have it, which has it, and what a launch does where none may supply it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "answer/resolver.hpp"

namespace kiln::answer {

/// What the machine code of an answer is looked up by. A tune compiles for the device's own architecture; the NVRTC
/// here may know an older one alone, and then compiles for that.
class CodeLookup {
 public:
  /// `arch`: what the NVRTC here compiles for (jit::default_arch). It is asked where the code for the device's own
  /// architecture is not found, since it opens NVRTC, which takes tens of milliseconds.
  CodeLookup(const manifest::Site& site, const Answer& answer, std::function<std::string()> arch);
  CodeLookup(const manifest::Site& site, const Answer& answer, const std::string& arch)
      : CodeLookup(site, answer, [arch] { return arch; }) {}

  /// False for what a library alone computes.
  [[nodiscard]] bool is_needed() const noexcept { return timed_.has_kernels(); }
  [[nodiscard]] const jit::Specialisation& timed() const noexcept { return timed_; }
  /// What is compiled where no file has it.
  [[nodiscard]] const jit::Specialisation& here();
  /// timed(), then here() where it differs: calls `look` with each until it finds something.
  template <class Look>
  auto find(const Look& look) -> decltype(look(timed())) {
    auto found = look(timed_);
    if (!found && here().arch != timed_.arch) found = look(here());
    return found;
  }
  /// The one under which the cubin was found.
  [[nodiscard]] const jit::Specialisation& of(const KeyedCubin& cubin) const;
  /// What a launch loads: Cubins::find_serving() by the answer's compiler.
  [[nodiscard]] std::optional<KeyedCubin> find_serving(Cubins& cubins, store::Counters* met = nullptr);
  /// Cubins::holds() by the answer's compiler.
  [[nodiscard]] bool is_held(Cubins& cubins);
  /// Cubins::passes_over() by the answer's compiler.
  [[nodiscard]] bool is_passed_over(Cubins& cubins);

 private:
  jit::Specialisation timed_;
  std::optional<jit::Specialisation> here_;
  std::string compiler_;
  std::function<std::string()> arch_;
};

/// Without NVRTC, removes fallbacks whose machine code no file holds, except defaults, which deployments include.
void leave_servable(Resolution& resolution, const std::string& arch, Cubins& cubins);

/// The machine code that launches of the bucket may need, each once, in the order of the answers. A library's answer
/// has none.
std::vector<jit::Specialisation> code_needed(const Resolution& resolution, const std::string& arch);

/// Returns the layer that may supply the answer's machine code, whatever NVRTC made it, because another machine may do
/// the launches. A library's answer has none.
std::optional<std::size_t> layer_with_code(const manifest::Site& site, const Answer& answer, const std::string& arch,
                                           store::Layers& layers);

/// Returns the first layer that has the answer's machine code and may not supply it.
std::optional<std::size_t> untrusted_layer_with_code(const manifest::Site& site, const Answer& answer,
                                                     const std::string& arch, const store::Layers& layers);

struct MachineCode {
  bool found = false;    // a launch on this machine needs no compile
  std::string where;     // one sentence: the file, why it may not supply the code, and what a launch does then
  std::string compiler;  // of the code that was found
};
/// The machine code that a launch on this machine would load.
MachineCode machine_code_of(const manifest::Site& site, const Answer& answer, const std::string& arch, Cubins& cubins);

}  // namespace kiln::answer
