// The machine code that verifying an op's outputs needs.
#pragma once

#include <string>
#include <vector>

#include "jit/specialisation.hpp"
#include "manifest/site.hpp"

namespace kiln::tune {

/// Returns the specialisations that verifying an op's outputs needs: its reference, and Kiln's own kernels for its
/// types.
std::vector<jit::Specialisation> verification(const manifest::Bucket& bucket, const std::string& arch);

}  // namespace kiln::tune
