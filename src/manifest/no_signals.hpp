// Threads that the library begins take none of the program's signals.
#pragma once

#include <pthread.h>

#include <csignal>

namespace kiln::manifest {

/// While it lives, threads that the calling thread begins have all signals blocked, so that the program's handlers run
/// on its own threads. What a thread causes itself, by a fault, and SIGPROF, by which profilers sample, stay as they
/// are.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int kept : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF}) sigdelset(&blocked, kept);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace kiln::manifest
