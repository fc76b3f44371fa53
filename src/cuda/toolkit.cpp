#include "cuda/toolkit.hpp"

#include <system_error>

#include "cuda/search_path.hpp"

namespace kiln::cuda {

std::vector<std::filesystem::path> toolkit_include_directories() {
  std::vector<std::filesystem::path> candidates;
  for (const auto& folder : toolkit_folders()) candidates.push_back(folder / "include");
  for (const auto& folder : wheel_folders({"nvidia/cu13/include", "nvidia/cuda_runtime/include"})) {
    candidates.push_back(folder);
  }
  std::error_code failure;
  for (const auto& include : candidates) {
    if (!std::filesystem::exists(include / "cuda_fp16.h", failure)) continue;
    std::vector<std::filesystem::path> found = {include};
    if (std::filesystem::is_directory(include / "cccl", failure)) found.push_back(include / "cccl");
    return found;
  }
  return {};
}

}  // namespace kiln::cuda
