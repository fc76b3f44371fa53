// The options of a compile. Private to the module.
#pragma once

#include <string>
#include <vector>

#include "jit/specialisation.hpp"

namespace kiln::jit {

/// Options that reach the machine code, in the order that they are passed and hashed.
inline std::vector<std::string> byte_determining_options(const Specialisation& specialisation) {
  std::vector<std::string> options = {"--std=c++20", "--gpu-architecture=" + specialisation.arch};
  options.insert(options.end(), specialisation.options.begin(), specialisation.options.end());
  return options;
}

/// --no-cache: NVRTC 13 keeps a cache of its own in the home folder, which is neither checked by digest nor bounded by what
/// Kiln trusts, fails where there is no home, and makes compile times lie. Kiln's file is the cache.
/// --no-source-include: a header in the working directory must not stand in for one that the op declares.
/// Neither reaches the machine code; an NVRTC that is too old to know them does without.
inline const std::vector<std::string> isolating_options = {"--no-cache", "--no-source-include"};

}  // namespace kiln::jit
