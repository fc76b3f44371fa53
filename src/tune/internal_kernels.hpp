// Kiln's own kernels, templates/internal: filling tensors, comparing them, flushing L2.
#pragma once

#include <string>

#include "jit/specialisation.hpp"
#include "manifest/op.hpp"

namespace kiln::tune {

/// The type in which a reference writes an output: f32, f64 for f64, the same for integers.
manifest::DType reference_type(manifest::DType type) noexcept;
jit::Specialisation fill_kernel(manifest::DType type, const std::string& arch);
/// Whether verifying the op needs late_copy_kernel: an axis of it may have its length on the device.
bool has_lengths(const manifest::Op& op) noexcept;
jit::Specialisation late_copy_kernel(const std::string& arch);
jit::Specialisation evict_kernel(const std::string& arch);
jit::Specialisation compare_kernels(manifest::DType type, const std::string& arch);

}  // namespace kiln::tune
