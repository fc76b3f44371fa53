// The frame and calls that a thread keeps for an executable, so that a launch writes only what differs from the last
// one.
#pragma once

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/thread_number.hpp"

namespace kiln::jit {

/// A frame, followed in one allocation by a call for each pass, linked to the frame.
class ThreadCall {
 public:
  /// Returns null when out of memory.
  [[nodiscard]] static ThreadCall* make(const std::vector<PassForm>& passes) noexcept;
  void operator delete(void* memory) noexcept { ::operator delete (memory, std::align_val_t{alignof(ThreadCall)}); }
  [[nodiscard]] PassCall* passes() noexcept { return reinterpret_cast<PassCall*>(this + 1); }
  [[nodiscard]] const PassCall* passes() const noexcept { return reinterpret_cast<const PassCall*>(this + 1); }

  CallFrame frame;

 private:
  ThreadCall() = default;
};

/// A ThreadCall for each thread_number(), whose lock publishes it to the next thread with that number. Threads that
/// share a number keep none, and link a call at each launch.
class ThreadCalls {
 public:
  /// Returns the call of the calling thread, whose number is `thread`. `passes` must be the same object at each call.
  /// Allocates at a thread's first call only. Returns null for a thread that shares its number, and when out of memory.
  [[nodiscard]] ThreadCall* own(const std::vector<PassForm>& passes, unsigned thread = thread_number()) const noexcept {
    ThreadCall* const kept = own_[thread].get();
    if (kept == nullptr) [[unlikely]]
      return make(thread, passes);
    return kept;
  }

 private:
  [[nodiscard]] ThreadCall* make(unsigned thread, const std::vector<PassForm>& passes) const noexcept;
  mutable std::array<std::unique_ptr<ThreadCall>, thread_numbers> own_;  // each written by its thread alone
};

}  // namespace kiln::jit
