// Where CUDA libraries and headers lie: a toolkit's folder, or the wheels that Python environments hold.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cuda {

/// $CUDA_HOME, $CUDA_PATH, /usr/local/cuda: those that exist.
std::vector<std::filesystem::path> toolkit_folders();

/// The site-packages of the active environment, the user and the system, found by looking, without running Python.
std::vector<std::filesystem::path> site_packages();

/// `names` in each of `folders`, as candidates for Library::open; those that do not exist are left out.
std::vector<std::string> existing_files(const std::vector<std::filesystem::path>& folders,
                                        const std::vector<std::string>& names);

/// Each of the wheel folders, such as "nvidia/cu13/lib", under each site-packages: those that exist.
std::vector<std::filesystem::path> wheel_folders(const std::vector<std::string_view>& inside);

}  // namespace kiln::cuda
