// Blocks a stream until the host has enqueued all the work to be timed, so that no host time falls between two events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "cuda/driver_api.hpp"

namespace kiln::cuda {

/// A word of host memory that streams wait on (cuStreamWaitValue32). Does nothing where the driver does not support
/// that, nor where CUDA_LAUNCH_BLOCKING makes each launch wait for its kernel: behind a closed gate that never ends.
class Gate {
 public:
  /// `longest`: how long hold() keeps a stream waiting at most. Throws Error(driver_failed) or Error(out_of_memory).
  explicit Gate(std::chrono::milliseconds longest = std::chrono::seconds(1)) : longest_(longest) { allocate(); }
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  /// Work enqueued after this call waits for open(). Before open(), enqueue at most a few hundred launches, because the
  /// driver's queue is bounded, and never wait for the stream. Throws Error(driver_failed).
  void close(CUstream stream);
  void open() noexcept;
  /// Calls `work` between close() and open(): what it enqueues on the stream begins once all of it is enqueued. Returns
  /// false where that took longer than `longest`: the gate was opened then, since a driver or a library may wait for
  /// the stream where it enqueues. Returns false and leaves the gate open where the system refuses the thread that
  /// would open it.
  template <class Work>
  bool hold(CUstream stream, const Work& work) {
    close(stream);
    try {
      Watch watch(*this);
      if (!watch.is_there()) open();
      work();
      open();
      return watch.end();
    } catch (...) {
      open();
      throw;
    }
  }

 private:
  /// A thread that opens the gate when it is held for too long.
  class Watch {
   public:
    explicit Watch(Gate& gate);
    ~Watch() { end(); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    [[nodiscard]] bool is_there() const noexcept { return thread_.joinable(); }
    /// Ends the thread. Returns whether there was one, and it has left the gate closed.
    bool end() noexcept;

   private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool has_ended_ = false, has_opened_ = false;
    std::thread thread_;
  };

  void allocate();

  const std::chrono::milliseconds longest_;
  std::uint32_t* word_ = nullptr;
  std::atomic<std::uint32_t> turn_ = 0;
};

}  // namespace kiln::cuda
