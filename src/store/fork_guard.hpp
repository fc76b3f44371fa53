// SQLite and forks.
#pragma once

namespace kiln::store {

/// A fork copies SQLite's memory as it stands: a mutex that another thread holds then stays locked in the child for ever, and
/// what SQLite knows of this process's file locks stays as in the middle of that thread's transaction. While one of these
/// lives, fork() waits in its caller, for five seconds at most.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

}  // namespace kiln::store
