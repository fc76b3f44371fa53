#include "gemm/settings.hpp"

#include <fmt/format.h>

#include <utility>

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
    } else if (!word.starts_with("--")) {
      settings.words.push_back(word);
    } else if (take_file(argc, argv, i, settings.options)) {
      continue;
    } else if (++i == argc) {
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is given without a value", word));
    } else if (word == "--stand-ins") {
      settings.stand_ins = argv[i];
    } else if (word == "--algorithms") {
      settings.algorithms = std::stoi(argv[i]);
    } else if (word == "--problems") {
      settings.shapes = shapes_of(argv[i]);
    } else {
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("{} is unknown; bench/gemm.cpp says what there is", word));
    }
  }
  return settings;
}

}  // namespace bench
