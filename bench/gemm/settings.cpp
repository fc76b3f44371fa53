#include "gemm/settings.hpp"

#include <fmt/format.h>

#include <utility>

#include "cli/bench/refinery.hpp"
#include "command_line.hpp"
#include "kiln/error.hpp"

namespace bench {
namespace {

std::vector<Shape> shapes_of(const std::string& path) {
  std::vector<Shape> shapes;
  for (WrittenProblem& each : read_problems(path)) {
    if (each.op != "gemm")
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} has {}, expected gemm", path, each.op));
    shapes.push_back({std::move(each.remark), std::move(each.words)});
  }
  return shapes;
}

}  // namespace

GemmSettings parse_gemm_settings(int argc, char** argv) {
  GemmSettings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--fast-accumulation") {
      settings.fast_accumulation = true;
    } else if (word == "--own-alone") {
      settings.own_alone = true;
    } else if (word == "--refine") {
      if (settings.splits == 0) settings.splits = kiln::cli::bench::RefineChoice().most_parts;
    } else if (!word.starts_with("--")) {
      settings.words.push_back(word);
    } else if (take_file(argc, argv, i, settings.options)) {
      continue;
    } else if (++i == argc) {
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is given without a value", word));
    } else if (word == "--own-overlay") {
      settings.own_overlay = argv[i];
    } else if (word == "--without") {
      settings.left_out.emplace_back(argv[i]);
    } else if (word == "--splits") {
      settings.splits = std::stoi(argv[i]);
    } else if (word == "--algorithms") {
      settings.algorithms = std::stoi(argv[i]);
    } else if (word == "--problems") {
      settings.shapes = shapes_of(argv[i]);
    } else {
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("{} is unknown; bench/gemm.cpp says what there is", word));
    }
  }
  if (settings.left_out.empty()) settings.left_out.emplace_back("cublaslt");
  return settings;
}

}  // namespace bench
