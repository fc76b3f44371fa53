#include "cli/exit_code.hpp"

namespace kiln::cli {

ExitCode exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::bad_input:
    case ErrorKind::bad_manifest:
    case ErrorKind::bad_expression: return exit_usage;
    case ErrorKind::no_driver:
    case ErrorKind::no_device:
    case ErrorKind::no_nvrtc:
    case ErrorKind::no_cublaslt:
    case ErrorKind::no_nccl:
    case ErrorKind::out_of_memory: return exit_lacking;
    case ErrorKind::bad_file:
    case ErrorKind::no_permission:
    case ErrorKind::io: return exit_refused;
    case ErrorKind::compile_failed:
    case ErrorKind::driver_failed:
    case ErrorKind::team_failed:
    case ErrorKind::capture: return exit_failed;
    case ErrorKind::not_tuned:
    case ErrorKind::wrong_result: return exit_wrong;
    case ErrorKind::interrupted: return exit_interrupted;
  }
  return exit_failed;
}

}  // namespace kiln::cli
