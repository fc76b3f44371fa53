// What a worker bounds in itself, so that a task cannot take the machine with it.
#pragma once

#include <cstdint>
#include <thread>

namespace kiln::process {

/// The exit status of a worker that ended itself at its memory limit.
constexpr int memory_limit_status = 86;

/// The bytes that this process may write to and shares with nobody: heap, data and stacks (what RLIMIT_DATA counts). 0 where /proc is not mounted.
std::int64_t private_bytes() noexcept;

/// Begun before a task: once the process holds `bytes` more than it does now, it ends with memory_limit_status. A task that takes memory faster
/// than it is looked at meets a hard limit (RLIMIT_DATA) some way above, where allocating fails.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::int64_t bytes);

  /// While it lives, the limit holds.
  [[nodiscard]] std::jthread watch() const;

 private:
  std::int64_t most_;
};

/// No core files: a compiler that crashes is no news to whoever owns the folder. Low priority: nice 19.
void forbid_core_files() noexcept;
void take_low_priority() noexcept;

}  // namespace kiln::process
