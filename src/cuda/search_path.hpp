// Where to find CUDA libraries and headers: the folders of a toolkit, and of Python's CUDA wheels.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cuda {

/// Returns those of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda that exist.
std::vector<std::filesystem::path> toolkit_folders();

/// Returns the folder of Python packages that `file` lies in, as that of a wheel does; empty where it lies in none.
std::filesystem::path packages_around(const std::filesystem::path& file);

/// Returns the site-packages folders of the package that this library is in, whether its environment is active or not,
/// then those of the active environment, the user and the system. Python is not run.
std::vector<std::filesystem::path> site_packages();

/// Returns FOLDER/NAME for each of `folders` and `names` where that file exists, as candidates for Library::open.
std::vector<std::string> existing_files(const std::vector<std::filesystem::path>& folders,
                                        const std::vector<std::string>& names);

/// Returns `names`, which the loader searches for, then existing_files() of each toolkit's folders `inside_toolkits`,
/// such as "lib64", and of wheel_folders(`wheels`).
std::vector<std::string> library_files(const std::vector<std::string>& names,
                                       const std::vector<std::string_view>& inside_toolkits,
                                       const std::vector<std::string_view>& wheels);

/// Returns SITE_PACKAGES/INSIDE for each of `inside`, such as "nvidia/cu13/lib", where that folder exists.
std::vector<std::filesystem::path> wheel_folders(const std::vector<std::string_view>& inside);

/// Returns the include directories of the first toolkit found: toolkit_folders(), then the wheels. There are two where
/// the toolkit keeps its C++ library apart, as since CUDA 13. Empty when there is no toolkit.
std::vector<std::filesystem::path> toolkit_include_directories();

}  // namespace kiln::cuda
