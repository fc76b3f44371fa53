// What the command's exit status says; `kiln --help` lists the same.
#pragma once

#include "kiln/error.hpp"

namespace kiln::cli {

enum ExitCode : int {
  exit_good = 0,
  exit_wrong = 1,          // it ran, but something is wrong or missing
  exit_usage = 2,          // bad input
  exit_lacking = 3,        // the machine lacks a driver, a device, memory or NVRTC
  exit_refused = 4,        // a file was refused, the file system said no, or the overlay does not keep what it should
  exit_failed = 5,         // a compile or a driver call failed
  exit_interrupted = 130,  // 128 + SIGINT
  exit_broken_pipe = 141,  // 128 + SIGPIPE: nobody reads the output any more
};

ExitCode exit_code_of(ErrorKind kind) noexcept;

}  // namespace kiln::cli
