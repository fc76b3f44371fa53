// The CUDA toolkit's headers, for the templates that include them.
#pragma once

#include <filesystem>
#include <vector>

namespace kiln::cuda {

/// The include directories of the first toolkit found, in search order: of $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, then of
/// the Python wheels. A toolkit since 13 has its C++ library apart, so there may be two. Empty when there is no toolkit.
std::vector<std::filesystem::path> toolkit_include_directories();

}  // namespace kiln::cuda
