// Every failure that Kiln reports. A miss is a value; a failure is an Error.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "kiln/export.h"

namespace kiln {

enum class ErrorKind {
  bad_input,       // unknown op, axis, type or tensor; a size out of range; a missing or misaligned tensor
  bad_manifest,    // op.toml or an implementation's file is wrong; the message gives file and line
  bad_expression,  // an expression does not parse, or its value overflows 64 bits
  no_driver,       // libcuda is absent or too old
  no_device,       // the driver sees no such device
  no_nvrtc,        // a compile is needed and libnvrtc is absent
  no_cublaslt,     // cuBLASLt is asked for and libcublasLt is absent or unusable
  no_nccl,         // NCCL is asked for, as by a team of its communicator, and is absent or unusable
  compile_failed,  // NVRTC refused a template; the message holds its log
  driver_failed,   // a driver call failed
  out_of_memory,   // device or host memory
  bad_file,        // a .kiln file is damaged, too new, or no .kiln file
  no_permission,   // the file system refused
  io,              // any other failure of files, sockets, processes or SQLite
  not_tuned,       // a miss under MissPolicy::error, or nothing legal can serve
  capture,         // the work would end a stream capture
  wrong_result,    // verification failed
  interrupted,     // the caller asked to stop
  team_failed,     // a rank of the team ended, failed, came late or not at all, or launched another plan
};

/// The kind's name as the CLI's --json prints it, such as "bad_manifest".
KILN_API std::string_view to_string(ErrorKind kind) noexcept;

/// what() is one sentence or more: what was asked, what was found, and what to do.
class KILN_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace kiln
