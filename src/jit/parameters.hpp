// Checks a manifest's `args` against the parameters that a cubin declares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/specialisation.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

/// Returns the bytes of each parameter, in order, from the cubin's .nv.info section, which cuobjdump -elf shows. Needs
/// no driver; drivers before 12.4 do not report parameters. Returns nothing when the section is missing or has an
/// unknown form.
std::optional<std::vector<std::int64_t>> parameter_sizes(std::span<const std::byte> image,
                                                         std::string_view lowered_name);

/// Returns what a kernel needs, from the cubin's notes: registers, local memory, static shared memory, and the most
/// threads that __launch_bounds__ and its registers admit. Needs no driver. Returns nothing for an unknown form.
std::optional<Resources> resources_of(std::span<const std::byte> image, std::string_view lowered_name);

/// Returns the bytes that a launch passes for this argument.
std::int64_t passed_bytes(const manifest::Op& op, const manifest::Argument& argument);

/// Returns what `args` and the parameters do not agree in, as "takes 4 bytes as argument 2, and 'rows' has 8": a launch
/// reads as many bytes as the parameters have. Once one argument is missing, those after it may be said to be wrong.
/// `implementation` is null for passes of op.toml.
std::vector<std::string> argument_mistakes(const manifest::Op& op, const manifest::Implementation* implementation,
                                           const manifest::Pass& pass, std::span<const std::int64_t> parameters);

/// Throws Error(bad_manifest) that names manifest, kernel and argument unless `args` match the parameters in number and
/// bytes.
void check_arguments(const manifest::Op& op, const manifest::Implementation* implementation, const manifest::Pass& pass,
                     std::span<const std::int64_t> parameters);

}  // namespace kiln::jit
