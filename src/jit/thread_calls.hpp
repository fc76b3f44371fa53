// What threads keep of an executable from launch to launch, so that a launch writes only what differs from the last one.
#pragma once

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/thread_number.hpp"

namespace kiln::jit {

/// A frame, and behind it for each pass a call that is linked to it: one piece of memory, in which a launch finds all by one address.
class ThreadCall {
 public:
  /// Null where there is no memory for it.
  [[nodiscard]] static ThreadCall* make(const std::vector<PassForm>& passes) noexcept;
  void operator delete(void* memory) noexcept { ::operator delete (memory, std::align_val_t{alignof(ThreadCall)}); }
  [[nodiscard]] PassCall* passes() noexcept { return reinterpret_cast<PassCall*>(this + 1); }
  [[nodiscard]] const PassCall* passes() const noexcept { return reinterpret_cast<const PassCall*>(this + 1); }

  CallFrame frame;

 private:
  ThreadCall() = default;
};

/// One a thread, by thread_number, whose lock is what the next thread of a number sees the last one's by. Threads that share a number keep
/// none: they link a call of their own at each launch.
class ThreadCalls {
 public:
  /// The calling thread's, whose number is `thread`, linked to these passes, which are the same at each call and stay where they are. A
  /// thread's first look allocates it, later ones do not. Null for a thread that keeps none, and where there is no memory for it.
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
