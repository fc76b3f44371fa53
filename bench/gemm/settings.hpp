// What bench_gemm is asked for.
#pragma once

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
  std::vector<std::string> words;  // of every problem: dtype=f16
  std::vector<Shape> shapes;
  std::string stand_ins;  // a file whose records, and the model, answer where nothing is tuned; empty: not asked
  int algorithms = 32;
  bool fast_accumulation = false;
};

/// Throws Error(bad_input) for a word that is unknown or lacks its value, Error(io) for a file that cannot be read.
GemmSettings parse_gemm_settings(int argc, char** argv);

}  // namespace bench
