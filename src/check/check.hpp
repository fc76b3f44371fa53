// kiln check: what is wrong in ops, without a device and without records. Static parts take milliseconds an op.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "check/compiles.hpp"
#include "check/spaces.hpp"

namespace kiln::check {

struct Settings {
  std::vector<Target> targets;
  std::vector<Problem> problems;  // tried before usual sizes
  bool compile = true;
  CompileChoice compiles;
};

struct Checked {
  std::string op;
  std::vector<Space> spaces;  // by implementation and target
  std::size_t compiles = 0;
};

/// An op as it was read, with mistakes where it is not whole.
struct ReadOp {
  manifest::Op op;
  std::vector<manifest::Mistake> mistakes;
};

/// Checks an op. Where op.toml has mistakes, they are all that is found; an implementation with mistakes is left out.
/// Throws Error(no_nvrtc) when it compiles and there is none.
Checked check_op(const ReadOp& read, const Settings& settings, Findings& findings);

/// Another op that is found beside those that are checked.
struct KnownOp {
  std::string name;
  std::string folder;  // "built-in", or a path
};

/// Reads the op in `folder`, or the ops in its sub-folders, and names folders that hold manifests or kernels but no
/// op.toml, and ops with the name of a `known` one. Throws Error(io) for a folder that cannot be listed, and
/// Error(bad_input) for one without an op.
std::vector<ReadOp> read_ops(const std::filesystem::path& folder, std::span<const KnownOp> known, Findings& findings);

}  // namespace kiln::check
