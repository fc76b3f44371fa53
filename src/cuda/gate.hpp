// Holds a stream back until the host has enqueued all that is to be timed, so that host time cannot enter between two events.
#pragma once

#include <cstdint>

#include "cuda/driver_api.hpp"

namespace kiln::cuda {

/// A word of host memory that streams wait on (cuStreamWaitValue32). Where the driver cannot, streams are not held back.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  /// What is enqueued after this waits for open(). The driver's queue is bounded: enqueue no more than a few hundred pieces of work
  /// before that, and nothing that waits for the stream.
  void close(CUstream stream);
  void open() noexcept;
  /// What `work` enqueues on the stream begins when all of it is enqueued.
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
