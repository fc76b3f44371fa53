#include "kiln/error.hpp"

namespace kiln {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::bad_input: return "bad_input";
    case ErrorKind::bad_manifest: return "bad_manifest";
    case ErrorKind::bad_expression: return "bad_expression";
    case ErrorKind::no_driver: return "no_driver";
    case ErrorKind::no_device: return "no_device";
    case ErrorKind::no_nvrtc: return "no_nvrtc";
    case ErrorKind::no_cublaslt: return "no_cublaslt";
    case ErrorKind::no_nccl: return "no_nccl";
    case ErrorKind::compile_failed: return "compile_failed";
    case ErrorKind::driver_failed: return "driver_failed";
    case ErrorKind::out_of_memory: return "out_of_memory";
    case ErrorKind::bad_file: return "bad_file";
    case ErrorKind::no_permission: return "no_permission";
    case ErrorKind::io: return "io";
    case ErrorKind::not_tuned: return "not_tuned";
    case ErrorKind::capture: return "capture";
    case ErrorKind::wrong_result: return "wrong_result";
    case ErrorKind::interrupted: return "interrupted";
    case ErrorKind::team_failed: return "team_failed";
  }
  return "unknown";
}

}  // namespace kiln
