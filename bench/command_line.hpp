// What the benches' command lines have in common.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/options.hpp"

namespace bench {

[[noreturn]] inline void refuse(const std::string& what) { throw kiln::Error(kiln::ErrorKind::bad_input, what); }

/// Throws Error(bad_input) for what is no number from 1 on.
inline int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    refuse(fmt::format("'{}' is no number from 1 on", text));
  return value;
}

/// Takes --base FILE, --overlay FILE or --samples FILE, to which tunes append what bench_replay repeats, and leaves `i` at the file. Returns
/// false for another word. Throws Error(bad_input) where no file follows.
inline bool take_file(int argc, char** argv, int& i, kiln::Options& options) {
  const std::string_view word = argv[i];
  if (word != "--base" && word != "--overlay" && word != "--samples") return false;
  if (++i == argc) throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is given without a value", word));
  if (word == "--base")
    options.bases.emplace_back(argv[i]);
  else if (word == "--samples")
    options.search.samples = argv[i];
  else
    options.overlay = argv[i];
  return true;
}

/// "gemm m=1 n=6144 k=4096 # Llama 3 8B qkv"
struct WrittenProblem {
  std::string op;
  std::vector<std::string> words;  // name=value
  std::string remark;
};

/// One a line. Throws Error(io) for a file that cannot be read.
inline std::vector<WrittenProblem> read_problems(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw kiln::Error(kiln::ErrorKind::io, fmt::format("the problems {} cannot be read", path));
  std::vector<WrittenProblem> problems;
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = std::min(line.find('#'), line.size());
    std::istringstream words(line.substr(0, end)), remark(line.substr(std::min(end + 1, line.size())));
    WrittenProblem problem;
    if (!(words >> problem.op)) continue;
    for (std::string word; words >> word;) problem.words.push_back(word);
    std::getline(remark >> std::ws, problem.remark);
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace bench
