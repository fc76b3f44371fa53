// kiln-worker: compiles and tries candidates for a process that uses Kiln, which speaks to it over its standard input. Not for people.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "jit/serve_compiles.hpp"
#include "process/descriptors.hpp"
#include "process/serve.hpp"
#include "tune/serve_trials.hpp"

int main() try {
  kiln::process::hold_standard_descriptors();  // the standard error is the owner's, closed if that is
  std::signal(SIGPIPE, SIG_IGN);               // what the driver or a compiler prints there may have no reader
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
