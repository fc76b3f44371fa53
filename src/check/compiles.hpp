// Compiles an op's kernels, and looks at their machine code as a plan does that loads it. Needs NVRTC and no device.
#pragma once

#include <filesystem>
#include <functional>

#include "check/geometry.hpp"

namespace kiln::check {

/// A compile under way or ended, for progress.
using OnCompile = std::function<void(const std::string& label)>;

struct CompileChoice {
  std::filesystem::path worker;  // kiln-worker: compiles run in processes; empty: in threads
  std::size_t most = 12;         // compiles of one implementation for one architecture
  OnCompile on_compile;          // may be empty
};

/// An implementation with its trials, or the op's reference and [prepare].
struct Compiled {
  const Target& target;
  const manifest::Implementation* implementation;  // null: the reference and [prepare]
  const Trials* trials;                            // of the implementation
};

/// Compiles each of `all` at its default with each type and choice, then at the corners of its configs. Findings name
/// errors of the compiler by the sources' lines, and kernels that do not take what the manifest gives. Returns how many
/// compiles there were. Throws Error(no_nvrtc).
std::size_t check_compiles(const manifest::Op& op, const Lines& lines, std::span<const Compiled> all,
                           const CompileChoice& choice, Findings& findings);

}  // namespace kiln::check
