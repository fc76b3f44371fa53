// kiln-worker: tries candidates for a process that tunes, which speaks to it over its standard input. Not for people.
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "tune/worker.hpp"

int main() try {
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("kiln-worker is run by kiln itself, when it tunes.\n", stderr);
    return 2;
  }
  return kiln::tune::serve_trials(STDIN_FILENO);
} catch (const std::exception& error) {
  std::fprintf(stderr, "kiln-worker: %s\n", error.what());
  return 1;
}
