// Lists the machine code that a deployment needs beside its records.
#pragma once

#include <string>
#include <vector>

#include "jit/specialisation.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"

namespace kiln::tune {

/// Returns the specialisations that launches of this bucket may need: the record's configs, and the default of each eligible
/// implementation, which serves real sizes that break a config's constraints. None for a library. `record` may be null.
std::vector<jit::Specialisation> deployed(const manifest::Op& op, const Problem& bucket,
                                          const manifest::DeviceFacts& device, const std::string& arch,
                                          const store::Record* record);
/// Returns the specialisations that verifying an op's outputs needs: its reference, and Kiln's own kernels for its types.
std::vector<jit::Specialisation> verification(const manifest::Op& op, const Problem& bucket,
                                              const manifest::DeviceFacts& device, const std::string& arch);

}  // namespace kiln::tune
