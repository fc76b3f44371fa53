// The kiln command while it runs: what it says is read as it comes, and the test acts in between.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "e2e/command.hpp"

namespace kiln::faults {

using namespace e2e;

/// The command in a process of its own, its standard output read line by line.
class Running {
 public:
  explicit Running(const std::string& words) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      const std::string line = "exec '" KILN_COMMAND "' " + words;
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    output_ = fdopen(ends[0], "r");
    REQUIRE(output_ != nullptr);
  }
  ~Running() {
    if (child_ > 0) kill(child_, SIGKILL), waitpid(child_, nullptr, 0);
    fclose(output_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Reads on until `count` more lines hold `part`; false at the end.
  bool wait_for(const std::string& part, int count = 1) {
    char line[1 << 14];
    while (count > 0) {
      if (fgets(line, sizeof line, output_) == nullptr) return false;
      said_ += line;
      if (contains(line, part)) --count;
    }
    return true;
  }
  void interrupt() const { REQUIRE(kill(child_, SIGINT) == 0); }
  /// As the shell says it: 130 for an end by SIGINT, too.
  int status() {
    wait_for("a line that never comes");
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  [[nodiscard]] const std::string& said() const noexcept { return said_; }

 private:
  pid_t child_ = -1;
  FILE* output_ = nullptr;
  std::string said_;
};

}  // namespace kiln::faults
