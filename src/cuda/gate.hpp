// Blocks a stream until the host has enqueued all the work to be timed, so that no host time falls between two events.
#pragma once

#include <cstdint>

#include "cuda/driver_api.hpp"

namespace kiln::cuda {

/// A word of host memory that streams wait on (cuStreamWaitValue32). Does nothing where the driver does not support
/// that.
class Gate {
 public:
  Gate();  // throws Error(driver_failed) or Error(out_of_memory)
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  /// Work enqueued after this call waits for open(). Before open(), enqueue at most a few hundred launches, because the
  /// driver's queue is bounded, and never wait for the stream. Throws Error(driver_failed).
  void close(CUstream stream);
  void open() noexcept;
  /// Calls `work` between close() and open(): what it enqueues on the stream begins once all of it is enqueued.
  template <class Work>
  void hold(CUstream stream, const Work& work) {
    close(stream);
    try {
      work();
    } catch (...) {
      open();
      throw;
    }
    open();
  }

 private:
  volatile std::uint32_t* word_ = nullptr;
  std::uint32_t turn_ = 0;
};

}  // namespace kiln::cuda
