// Kernel names with {placeholders}: "rms_norm_vectorized<{dtype}, {threads}>".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/kernel_name.hpp"
#include "manifest/op.hpp"

namespace kiln::manifest {

/// Throws Error(bad_expression) for an unmatched brace, a placeholder that does not parse, or literal text that is not
/// part of a C++ template name. Placeholders expand to integers and declared words only, so a name cannot hold other
/// source code.
KernelName parse_kernel_name(std::string_view text, const Symbols& symbols);

/// Fills the placeholders: a plain type gives its C++ name, a plain choice its word, anything else its number. Throws
/// Error(bad_expression) for a placeholder without a value.
std::string fill_kernel_name(const KernelName& name, const Symbols& symbols, std::span<const std::int64_t> frame);

/// Returns the name expression of each pass, its placeholders filled with C++ type names, words of choices and
/// integers. A pass whose `when` is 0 gives an empty string. Throws Error(bad_manifest) when a placeholder depends on a
/// size that the bucket does not fix.
std::vector<std::string> name_expressions(const Op& op, std::span<const Pass> passes, const Symbols& symbols,
                                          std::span<const std::int64_t> frame);

}  // namespace kiln::manifest
