// The command's exit statuses, which `kiln --help` lists too.
#pragma once

#include "kiln/error.hpp"

namespace kiln::cli {

enum ExitCode : int {
  exit_good = 0,
  exit_wrong = 1,          // a result is wrong or missing
  exit_usage = 2,          // bad input
  exit_lacking = 3,        // the machine lacks a driver, a device, memory or NVRTC
  exit_refused = 4,        // a file was refused, the file system failed, or the overlay cannot keep results
  exit_failed = 5,         // a compile or a driver call failed
  exit_interrupted = 130,  // 128 + SIGINT
  exit_broken_pipe = 141,  // 128 + SIGPIPE: the reader of the output closed it
};

ExitCode exit_code_of(ErrorKind kind) noexcept;

}  // namespace kiln::cli
