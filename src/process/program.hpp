// Where the program kiln-worker lies.
#pragma once

#include <filesystem>

namespace kiln::process {

/// `chosen` if it is not empty, else $KILN_WORKER ("none": no worker), else kiln-worker beside the running program or the
/// shared library, else where Kiln was installed. Empty when there is none.
std::filesystem::path find_worker(const std::filesystem::path& chosen);

}  // namespace kiln::process
