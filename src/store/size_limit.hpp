// A write past the process's file-size limit (RLIMIT_FSIZE) fails, and ends nothing.
#pragma once

#include <csignal>

namespace kiln::store {

/// The kernel answers such a write with EFBIG and a SIGXFSZ to the thread, whose default is to end the process. A library
/// must not change how its process takes a signal, so this thread alone holds it back, and drops it, for as long as
/// this lives. A signal that the caller had blocked, and that was pending before, stays so.
class SizeLimitGuard {
 public:
  SizeLimitGuard() noexcept;
  ~SizeLimitGuard();
  SizeLimitGuard(const SizeLimitGuard&) = delete;
  SizeLimitGuard& operator=(const SizeLimitGuard&) = delete;

 private:
  bool blocked_before_ = false;
  bool pending_before_ = false;
};

}  // namespace kiln::store
