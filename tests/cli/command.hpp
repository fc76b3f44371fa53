// The built command, run as a person runs it.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace kiln::testing {

struct Ran {
  int status = -1;
  std::string output, errors;
};

/// A home of its own, and a machine without driver and NVRTC.
class Command {
 public:
  explicit Command(std::string program = KILN_COMMAND) : program_(std::move(program)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "kiln-cli-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~Command() { std::filesystem::remove_all(folder_); }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// `before` is shell, such as "ulimit -f 1; " or "COLUMNS=80 ".
  [[nodiscard]] Ran run(const std::string& arguments, const std::string& before = {}) const {
    const std::string errors = folder_ / "errors";
    const std::string line =
        "unset COLUMNS; " + before + "KILN_CUDA_LIBRARY=none KILN_NVRTC_LIBRARY=none KILN_CACHE='" +
        (folder_ / "overlay.kiln").string() + "' '" + program_ + "' " + arguments + " 2>'" + errors + "'";
    Ran ran;
    FILE* const pipe = ::popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::array<char, 4096> buffer{};
    for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      ran.output.append(buffer.data(), got);
    const int ended = ::pclose(pipe);
    ran.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    std::ifstream file(errors);
    ran.errors.assign(std::istreambuf_iterator<char>(file), {});
    return ran;
  }
  [[nodiscard]] std::string path(const std::string& name, const std::string& text = {}) const {
    if (!text.empty()) std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

 private:
  std::string program_;
  std::filesystem::path folder_;
};

inline void check_refused(const Ran& ran, int status, const std::string& sentence) {
  CAPTURE(ran.errors);
  CHECK(ran.status == status);
  CHECK(ran.errors.find(sentence) != std::string::npos);
  CHECK(std::count(ran.errors.begin(), ran.errors.end(), '\n') == 1);
}

}  // namespace kiln::testing
