// Kiln's own kernels, templates/internal: filling tensors, comparing them, flushing L2.
#pragma once

#include <string>

#include "jit/specialisation.hpp"
#include "spec/op.hpp"

namespace kiln::tune {

/// The type in which a reference writes an output: f32, f64 for f64, the same for integers.
spec::DType reference_type(spec::DType type) noexcept;
jit::Specialisation fill_kernel(spec::DType type, const std::string& arch);
/// Whether verifying the op needs late_copy_kernel: an axis of it may have its length on the device.
bool has_lengths(const spec::Op& op) noexcept;
jit::Specialisation late_copy_kernel(const std::string& arch);
jit::Specialisation evict_kernel(const std::string& arch);
jit::Specialisation compare_kernels(spec::DType type, const std::string& arch);

}  // namespace kiln::tune
