// What a kernel takes, by its cubin, against what a manifest's `args` give it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::jit {

/// Bytes of each parameter, in order, by the cubin's own table: .nv.info, as cuobjdump -elf shows it. Needs no driver, and drivers before
/// 12.4 cannot tell. Nothing when the cubin has no table in a form that is known.
std::optional<std::vector<std::int64_t>> parameter_sizes(std::span<const std::byte> image,
                                                         std::string_view lowered_name);

/// Bytes that a launch passes for it.
std::int64_t passed_bytes(const manifest::Op& op, const manifest::Argument& argument);

/// Throws Error(bad_manifest) that names manifest, kernel and argument unless `args` are as many and as wide as the parameters: a launch
/// reads as many bytes as these have. `implementation` is null for the op's reference.
void check_arguments(const manifest::Op& op, const manifest::Implementation* implementation, const manifest::Pass& pass,
                     std::span<const std::int64_t> parameters);

}  // namespace kiln::jit
