// Kernel names with {placeholders}: "rms_norm_vectorized<{dtype}, {threads}>".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/expression.hpp"

namespace kiln::manifest {

/// Literal text and placeholders in turn; `literals` has one element more than `placeholders`.
struct KernelName {
  std::vector<std::string> literals;
  std::vector<Expression> placeholders;
};

/// Throws Error(bad_expression) for an unmatched brace, a placeholder that does not parse, or literal text that is no part of
/// a C++ template name: placeholders expand to integers and declared words only, so nothing else can be smuggled in.
KernelName parse_kernel_name(std::string_view text, const Symbols& symbols);

/// The name filled in: a plain type as its C++ spelling, a plain choice as its word, anything else as its number. Throws
/// Error(bad_expression) for a placeholder without a value.
std::string fill_kernel_name(const KernelName& name, const Symbols& symbols, std::span<const std::int64_t> frame);

}  // namespace kiln::manifest
