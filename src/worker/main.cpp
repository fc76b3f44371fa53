// kiln-worker: tries candidates for a process that tunes, which speaks to it over its standard input. Not for people.
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "process/serve.hpp"
#include "tune/serve_trials.hpp"

int main() try {
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("kiln-worker is run by kiln itself, when it tunes.\n", stderr);
    return 2;
  }
  kiln::tune::TrialService trials;
  kiln::process::serve(STDIN_FILENO, [&](const nlohmann::json& message) { return trials.answer(message); });
} catch (const std::exception& error) {
  std::fprintf(stderr, "kiln-worker: %s\n", error.what());
  return 1;
}
