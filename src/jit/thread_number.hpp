// A small number for each thread that launches, which indexes the thread's own counters, samples and descriptors.
#pragma once

#include <cstdint>

namespace kiln::jit {

inline constexpr unsigned thread_numbers = 64;
/// The number of threads that exceed the others, and of every thread in a child forked from a process with a context
/// (cuda::is_forked). Launches with this number leave the hit path, so that a hit need not test for a fork.
inline constexpr unsigned shared_thread_number = 0;

namespace detail {
inline constexpr std::uint8_t no_thread_number = 255;
// constinit avoids a guard and initial-exec a look-up in a shared object, so that a read costs no call.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local std::uint8_t thread_number = no_thread_number;
unsigned take_thread_number() noexcept;
}  // namespace detail

/// Returns a number under thread_numbers. Any but shared_thread_number belongs to this thread alone until it ends. Its
/// writes are then visible to the next thread with that number, so counters need no atomic addition. The first call in
/// a thread may lock.
inline unsigned thread_number() noexcept {
  const std::uint8_t number = detail::thread_number;
  if (number == detail::no_thread_number) [[unlikely]]
    return detail::take_thread_number();
  return number;
}

}  // namespace kiln::jit
