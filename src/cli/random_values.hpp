// Finite, varied values for tensors that are launched on but not verified: all-zero inputs would flatter the timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::cli {

/// `count` values as the type's bytes: reals with magnitudes from 1/16 to 1 and either sign, integers from 0 to 7.
std::vector<std::byte> random_values(manifest::DType type, std::size_t count, std::uint64_t seed);

}  // namespace kiln::cli
