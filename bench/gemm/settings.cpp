#include "gemm/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "cli/bench/refinery.hpp"
#include "kiln/error.hpp"

namespace bench {
namespace {

/// "gemm m=1 n=6144 k=4096 # Llama 3 8B qkv" a line
std::vector<Shape> read_shapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw kiln::Error(kiln::ErrorKind::io, fmt::format("the problems {} cannot be read", path));
  std::vector<Shape> shapes;
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = std::min(line.find('#'), line.size());
    std::istringstream words(line.substr(0, end)), remark(line.substr(std::min(end + 1, line.size())));
    std::string op;
    if (!(words >> op)) continue;
    if (op != "gemm") throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} has {}, expected gemm", path, op));
    Shape shape;
    for (std::string word; words >> word;) shape.words.push_back(word);
    std::getline(remark >> std::ws, shape.name);
    shapes.push_back(std::move(shape));
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
    } else if (++i == argc) {
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is given without a value", word));
    } else if (word == "--base") {
      settings.options.bases.emplace_back(argv[i]);
    } else if (word == "--overlay") {
      settings.options.overlay = argv[i];
    } else if (word == "--own-overlay") {
      settings.own_overlay = argv[i];
    } else if (word == "--without") {
      settings.left_out.emplace_back(argv[i]);
    } else if (word == "--splits") {
      settings.splits = std::stoi(argv[i]);
    } else if (word == "--algorithms") {
      settings.algorithms = std::stoi(argv[i]);
    } else if (word == "--problems") {
      settings.shapes = read_shapes(argv[i]);
    } else {
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("{} is unknown; bench/gemm.cpp says what there is", word));
    }
  }
  if (settings.left_out.empty()) settings.left_out.emplace_back("cublaslt");
  return settings;
}

}  // namespace bench
