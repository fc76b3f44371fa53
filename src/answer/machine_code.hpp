// Which file has an answer's machine code, and what a launch does where none may supply it.
#pragma once

#include <optional>
#include <string>

#include "answer/resolver.hpp"

namespace kiln::answer {

/// Returns the layer that may supply the answer's machine code, whatever NVRTC made it, because another machine may do the launches. A
/// library's answer has none.
std::optional<std::size_t> layer_with_code(const manifest::Op& op, const Answer& answer,
                                           const manifest::DeviceFacts& device, const std::string& arch,
                                           store::Layers& layers);

/// Returns the first layer that has the answer's machine code and may not supply it.
std::optional<std::size_t> untrusted_layer_with_code(const manifest::Op& op, const Answer& answer,
                                                     const manifest::DeviceFacts& device, const std::string& arch,
                                                     const store::Layers& layers);

struct MachineCode {
  bool found = false;    // a launch on this machine needs no compile
  std::string where;     // one sentence: the file, why it may not supply the code, and what a launch does then
  std::string compiler;  // of the code that was found
};
/// The machine code that a launch on this machine would load.
MachineCode machine_code_of(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
                            const std::string& arch, Cubins& cubins);

}  // namespace kiln::answer
