// What bench_gemm is asked for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kiln/options.hpp"

namespace bench {

struct Shape {
  std::string name;                // "Llama 3 8B qkv"
  std::vector<std::string> words;  // m=1 n=6144 k=4096
};

struct GemmSettings {
  kiln::Options options;
  std::filesystem::path own_overlay;  // empty: in memory
  std::vector<std::string> left_out;  // implementations that are not Kiln's own kernels
  std::vector<std::string> words;     // of every problem: dtype=f16
  std::vector<Shape> shapes;
  int algorithms = 32;
  bool fast_accumulation = false;
  bool own_alone = false;  // the plan is that of Kiln's own kernels, and the whole op is not tuned
  int splits = 0;          // of a bucket, as kiln tune --refine --splits has it; 0: none is refined
};

/// Throws Error(bad_input) for a word that is unknown or lacks its value, Error(io) for a file that cannot be read.
GemmSettings parse_gemm_settings(int argc, char** argv);

}  // namespace bench
