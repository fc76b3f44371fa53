// A small number for each thread that launches, so that what launches write lies apart: counters, samples, descriptors.
#pragma once

#include <cstdint>

namespace kiln::jit {

inline constexpr unsigned thread_numbers = 64;
/// Of threads that have no number of their own: more than others live at once, and all of a child that was forked from a process with a
/// context (cuda::is_forked), so that a launch there leaves the path of a hit without a hit having to ask.
inline constexpr unsigned shared_thread_number = 0;

namespace detail {
inline constexpr std::uint8_t no_thread_number = 255;
// A plain byte, so that reading it costs no call: constinit has no guard, and the model no look-up where Kiln is in a shared object.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local std::uint8_t thread_number = no_thread_number;
unsigned take_thread_number() noexcept;
}  // namespace detail

/// Under thread_numbers. One that is not shared is this thread's alone until it ends; what it wrote is then seen by the next thread of
/// that number, so that such numbers' counters need no atomic addition. The first call in a thread may take a lock.
inline unsigned thread_number() noexcept {
  const std::uint8_t number = detail::thread_number;
  if (number == detail::no_thread_number) [[unlikely]]
    return detail::take_thread_number();
  return number;
}

}  // namespace kiln::jit
