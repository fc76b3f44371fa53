// What a program without Kiln would do: one plain kernel, compiled by NVRTC or read from a file, loaded and launched.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cold/norm_case.hpp"

namespace kiln::bench {

std::vector<char> compile_by_hand(const std::string& arch);
std::vector<char> read_cubin(const std::filesystem::path& path);
void launch_by_hand(const std::vector<char>& cubin, const NormCase& norm, CUstream stream);

}  // namespace kiln::bench
