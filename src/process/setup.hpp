// What a program of Kiln sets in its own process: standard descriptors, a memory limit, core files, priority.
#pragma once

#include <cstdint>
#include <thread>

namespace kiln::process {

/// Opens "/" as each of descriptors 0 to 2 that is closed, so that no file or socket opened later becomes a standard
/// stream. Reading or writing such a descriptor still fails with EBADF. Call it first in main().
void hold_standard_descriptors() noexcept;

/// Closes every descriptor past the standard ones: what an owner opened without close-on-exec is not its worker's,
/// whose end of a pipe would keep a reader waiting.
void close_inherited_descriptors() noexcept;

/// Makes the root the current directory where that was removed or has a very long path: NVRTC reads past its buffer
/// there.
void leave_unnamed_directory() noexcept;

/// The exit status of a worker that ended itself at its memory limit.
constexpr int memory_limit_status = 86;

/// Returns the bytes of this process's private writable memory: heap, data and stacks, as RLIMIT_DATA counts them. 0
/// where /proc is not mounted.
std::int64_t private_bytes() noexcept;

/// Make one before a task: once the process holds `bytes` more than at that moment, it exits with memory_limit_status.
/// Memory is checked every 10 ms. Between two checks RLIMIT_DATA, 512 MiB higher, makes allocations fail.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::int64_t bytes);

  /// Returns the thread that enforces the limit until it is stopped. Where the system refuses a thread, RLIMIT_DATA
  /// alone does.
  [[nodiscard]] std::jthread watch() const;

 private:
  std::int64_t most_;
};

void forbid_core_files() noexcept;
void take_low_priority() noexcept;  // nice 19

}  // namespace kiln::process
