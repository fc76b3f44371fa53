// Kiln's own kernels, templates/internal: filling tensors, comparing them, flushing L2.
#pragma once

#include <string>

#include "jit/specialisation.hpp"
#include "manifest/op.hpp"

namespace kiln::tune {

/// Returns the type in which a reference writes an output: f32 for the smaller floating types, else the type itself.
manifest::DType reference_type(manifest::DType type) noexcept;
// Each throws Error(bad_manifest) when this build lacks the kernel's file.
jit::Specialisation fill_kernel(manifest::DType type, const std::string& arch);
/// Whether verifying needs late_copy_kernel(): for lengths on the device, and for prepared inputs.
bool needs_late_copy(const manifest::Op& op) noexcept;
jit::Specialisation late_copy_kernel(const std::string& arch);
jit::Specialisation evict_kernel(const std::string& arch);
jit::Specialisation team_barrier_kernel(const std::string& arch);
jit::Specialisation compare_kernels(manifest::DType type, const std::string& arch);

}  // namespace kiln::tune
