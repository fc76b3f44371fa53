// kiln-worker: compiles and tries candidates for a process that uses Kiln, which speaks to it over its standard input. Not for people.
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "jit/serve_compiles.hpp"
#include "process/serve.hpp"
#include "tune/serve_trials.hpp"

int main() try {
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("kiln-worker is run by kiln itself, to compile and to tune.\n", stderr);
    return 2;
  }
  kiln::jit::CompileService compiles;
  kiln::tune::TrialService trials;
  kiln::process::serve(STDIN_FILENO, [&](const nlohmann::json& message) {
    return message.contains("compile") ? compiles.answer(message) : trials.answer(message);
  });
} catch (const std::exception& error) {
  std::fprintf(stderr, "kiln-worker: %s\n", error.what());
  return 1;
}
