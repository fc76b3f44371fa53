// A stack of its own for each emulated thread, all in one thread of the host.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulator {

/// Runs `body` whenever it is resumed, until that pauses or returns. A fiber that never ended may be dropped: what is on its stack
/// is then not destroyed.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// `body` must not throw.
  void start(std::span<std::byte> stack, std::function<void()> body);
  /// Returns when body pauses or has returned.
  void resume();
  /// Within body.
  void pause();
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static void enter(Fiber& self);
  /// The other stack, whichever of both is current.
  void switch_stacks(bool inwards);

#ifdef __x86_64__
  void *inside_ = nullptr, *outside_ = nullptr;  // tops of the stacks that are not current
#else
  ucontext_t inside_{}, outside_{};
#endif
  std::span<std::byte> stack_;
  std::function<void()> body_;
  bool ended_ = false;
  const void* outer_stack_ = nullptr;  // of who resumed, as AddressSanitizer wants to know it
  std::size_t outer_bytes_ = 0;
};

}  // namespace emulator
