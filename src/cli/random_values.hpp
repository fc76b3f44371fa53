// Random values for tensors that are launched but not verified. All-zero inputs would make the timing too good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::cli {

/// Returns the bytes of `count` values of the type: reals of magnitude 1/16 to 1 and either sign, integers from 0 to 7.
std::vector<std::byte> random_values(manifest::DType type, std::size_t count, std::uint64_t seed);

}  // namespace kiln::cli
