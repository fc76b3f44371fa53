// PTX without what no kernel's machine code depends on, to compare what two source texts mean.
#pragma once

#include <string>
#include <string_view>

namespace bench {

/// Returns the PTX without comments, .file, .loc, and variables that no kernel uses, such as the constants of a class template. Mangled names, which
/// hold those of files, local variables and hashes of the source, are numbered in the order in which they come. Equal results assemble to equal
/// kernels.
std::string normal_ptx(std::string_view ptx);

}  // namespace bench
