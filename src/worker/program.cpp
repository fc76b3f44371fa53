#include "worker/program.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "jit/serve_compiles.hpp"
#include "manifest/text.hpp"
#include "process/serve.hpp"
#include "process/setup.hpp"
#include "tune/serve_trials.hpp"

int kiln_worker_main() noexcept try {
  kiln::process::hold_standard_descriptors();  // the parent's standard error is inherited, and may be closed
  kiln::process::close_inherited_descriptors();
  kiln::process::leave_unnamed_directory();
  std::signal(SIGPIPE, SIG_IGN);  // the driver or a compiler may print there when nobody reads it
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("kiln-worker is run by kiln itself, to compile and to tune.\n", stderr);
    return 2;
  }
  kiln::jit::CompileService compiles;
  kiln::tune::TrialService trials;
  kiln::process::serve(STDIN_FILENO, [&](const nlohmann::json& message) {
    return message.contains("compile") ? compiles.answer(message) : trials.answer(message);
  });
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kiln-worker: %s\n", kiln::manifest::printable(error.what()).c_str());
  return 1;
}
