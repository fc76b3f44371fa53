// Lets memory that launches read without a lock be freed: waits for the launches that may still read it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "jit/thread_number.hpp"

namespace kiln::plan {

/// A launch that reads shared state between Entered's constructor and destructor delays wait(). No launch after wait()
/// reads what was unlinked before it.
///
/// A launch pays one store at each end. wait() makes it visible by a memory barrier on all threads (membarrier(2)).
/// Where the kernel has no such call, each launch pays a fence.
class LaunchesInFlight {
 public:
  LaunchesInFlight() noexcept;
  LaunchesInFlight(const LaunchesInFlight&) = delete;
  LaunchesInFlight& operator=(const LaunchesInFlight&) = delete;

  class Entered {
   public:
    /// `thread`: jit::thread_number() of the calling thread.
    Entered(LaunchesInFlight& of, unsigned thread) noexcept;
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    std::atomic<std::uint32_t>* count_;
    bool shared_;
  };

  /// Waits until every launch that is inside has left. Returns false where the kernel refuses the barrier, so that
  /// nothing may be freed. Precondition: the calling thread is not inside.
  [[nodiscard]] bool wait() noexcept;

 private:
  struct alignas(128) Slot {                // two lines: processors fetch them in pairs
    std::atomic<std::uint32_t> entered{0};  // odd while the thread is inside
  };
  void wait_for_shared() noexcept;

  const bool has_membarrier_;
  std::array<Slot, jit::thread_numbers> own_;
  // Threads without a number of their own count themselves in and out, under the phase that they found.
  std::atomic<unsigned> phase_{0};
  std::array<std::atomic<std::uint32_t>, 2> shared_{};
  std::mutex waiting_;
  bool is_registered_ = false;  // for barriers; guarded by waiting_
};

inline LaunchesInFlight::Entered::Entered(LaunchesInFlight& of, unsigned thread) noexcept
    : count_(&of.own_[thread].entered), shared_(thread == jit::shared_thread_number) {
  if (shared_) [[unlikely]] {
    count_ = &of.shared_[of.phase_.load(std::memory_order_seq_cst)];
    count_->fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return;
  }
  count_->store(count_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (of.has_membarrier_) [[likely]]
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

inline LaunchesInFlight::Entered::~Entered() {
  if (shared_) [[unlikely]]
    count_->fetch_sub(1, std::memory_order_release);
  else
    count_->store(count_->load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace kiln::plan
