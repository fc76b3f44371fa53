// Children of fork, and what they are refused.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "faults/engine/fixture.hpp"

namespace kiln::faults {

inline constexpr const char* asan_allocator =
    "a child among threads may wait permanently for the allocator of AddressSanitizer (before LLVM 18)";

/// The exit status of a child that does `work`: 0 when that returns true.
template <class Work>
int status_of_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that hangs
    try {
      _exit(work() ? 0 : 1);
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
      _exit(2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Whether `work` throws an Error that says what is wrong and what to do.
template <class Work>
bool is_refused(Work work) {
  try {
    static_cast<void>(work());
  } catch (const Error& error) {
    if (contains(error.what(), "forked from") && contains(error.what(), "before the first engine")) return true;
    fprintf(stderr, "child: %s\n", error.what());
    return false;
  }
  fprintf(stderr, "child: nothing was refused\n");
  return false;
}

}  // namespace kiln::faults
