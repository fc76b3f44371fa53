// What a process must hold back while it is inside SQLite: forks, the signal of the file-size limit, and other threads.
#pragma once

#include <chrono>
#include <csignal>
#include <mutex>

namespace kiln::store {

/// A fork copies SQLite's memory: a mutex that another thread holds stays locked in the child, and SQLite's list of
/// this process's file locks stays as that thread left it. While a ForkGuard lives, fork() waits, for 5 s at most.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

/// A descriptor that a child of fork() closes at once. The locks of an open file description are held until every
/// process has closed it, so a child would hold those of a parent that was killed. Never moves.
class ParentsDescriptor {
 public:
  explicit ParentsDescriptor(int number) noexcept;
  ~ParentsDescriptor();
  ParentsDescriptor(const ParentsDescriptor&) = delete;
  ParentsDescriptor& operator=(const ParentsDescriptor&) = delete;
  /// Returns -1 in a child.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  friend void close_parents_descriptors() noexcept;
  int number_;
  ParentsDescriptor *before_ = nullptr, *after_ = nullptr;
};

/// A write past the process's file-size limit (RLIMIT_FSIZE) fails with EFBIG, and sends SIGXFSZ, which by default ends
/// the process. A SizeLimitGuard blocks that signal on this thread while it lives, and then discards it. It keeps a
/// signal that was pending before.
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

/// Returns a lock that is not owned when `patience` passed before. Waits without a limit for 5 s or more: each holder
/// ends its own waits by then.
std::unique_lock<std::mutex> lock_within(std::mutex& mutex, std::chrono::milliseconds patience);

}  // namespace kiln::store
