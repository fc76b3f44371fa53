// What threads keep of an executable from launch to launch, so that a launch writes only what differs from the last one.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/thread_number.hpp"

namespace kiln::jit {

/// A frame, and for each pass a call that is linked to it.
struct KeptCall {
  CallFrame frame;
  std::unique_ptr<PassCall[]> passes;
};

/// One a thread, by thread_number, whose lock is what the next thread of a number sees the last one's by. Threads that share a number keep
/// none: they link a call of their own at each launch.
class KeptCalls {
 public:
  /// The calling thread's, linked to these passes, which are the same at each call and stay where they are. A thread's first look allocates
  /// it, later ones do not. Null for a thread that keeps none, and where there is no memory for it.
  [[nodiscard]] KeptCall* own(const std::vector<PassForm>& passes) const noexcept {
    const unsigned thread = thread_number();
    KeptCall* const kept = own_[thread].get();
    if (kept == nullptr) [[unlikely]]
      return make(thread, passes);
    return kept;
  }

 private:
  [[nodiscard]] KeptCall* make(unsigned thread, const std::vector<PassForm>& passes) const noexcept;
  mutable std::array<std::unique_ptr<KeptCall>, thread_numbers> own_;  // each written by its thread alone
};

}  // namespace kiln::jit
