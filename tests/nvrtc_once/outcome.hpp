// What came of a program, in memory and in a file: the count of texts, then each after its length, 8 bytes a number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/nvrtc_api.hpp"

namespace nvrtc_once {

struct Outcome {
  nvrtcResult result = NVRTC_SUCCESS;
  std::string log, cubin;
  std::vector<std::string> lowered_names;  // in the order of the program's name expressions
};

/// Of a success. Nothing where there is no such file, or not the whole of one.
std::optional<Outcome> read(const std::string& path);

/// Whole or not at all, whoever else writes it; where it cannot be written, it is not.
void write(const std::string& path, const Outcome& success);

}  // namespace nvrtc_once
