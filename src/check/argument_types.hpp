// Compares the types of `args` with those that kernels are declared with.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "check/signature.hpp"
#include "manifest/op.hpp"

namespace kiln::check {

/// Whose a pass is, which decides in what type it has an output.
enum class PassOf : std::uint8_t { implementation, reference, prepare };

struct TypeMistake {
  std::size_t argument = 0;  // from 0
  std::string what;          // "takes 'float*' as argument 2, and 'y' is kiln::bf16*"
};

/// Returns the arguments whose type is surely another: a pointer for a number, an integer for a real, a pointer to
/// floats of one type for a tensor of another. Bytes, void and integers stand for anything that they may be used to
/// copy.
std::vector<TypeMistake> type_mistakes(const manifest::Op& op, const manifest::Pass& pass, PassOf of,
                                       std::span<const std::int64_t> frame, std::span<const ParameterType> types);

/// The passes of one launch in their order, each with the types of its kernel.
struct TypedPass {
  std::size_t index = 0;  // of the implementation's or the reference's passes
  const manifest::Pass* pass = nullptr;
  std::vector<ParameterType> types;  // empty: unknown
};

struct UnwrittenMistake {
  std::size_t pass = 0;
  std::string name;  // of the tensor or workspace
  std::string what;
};

/// Returns outputs that every pass takes as a pointer to const, and workspaces that the first pass to take them does
/// so. `implementation` is null for the reference.
std::vector<UnwrittenMistake> unwritten(const manifest::Op& op, const manifest::Implementation* implementation,
                                        std::span<const std::int64_t> frame, std::span<const TypedPass> passes);

}  // namespace kiln::check
