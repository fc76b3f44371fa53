// The machine code that verifying an op's outputs needs.
#pragma once

#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "jit/specialisation.hpp"
#include "manifest/site.hpp"

namespace kiln::tune {

/// Returns the specialisations that verifying an op's outputs needs: its reference, and Kiln's own kernels for its
/// types.
std::vector<jit::Specialisation> verification(const manifest::Bucket& bucket, const std::string& arch);
/// Returns their machine code, as a process that runs candidates is given it. Throws as answer::Cubins::get does.
std::vector<store::CubinRow> verification_rows(const manifest::Bucket& bucket, const std::string& arch,
                                               answer::Cubins& cubins);

}  // namespace kiln::tune
