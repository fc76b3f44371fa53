#include "jit/thread_number.hpp"

#include <pthread.h>

#include <bit>
#include <limits>
#include <mutex>

#include "cuda/device.hpp"

namespace kiln::jit::detail {
namespace {

// Process-wide, because a thread launches on several engines. Both are constant-initialised and trivially destroyed,
// since threads may end after static destruction.
std::mutex numbers_mutex;
std::uint64_t free_numbers =
    std::numeric_limits<std::uint64_t>::max() - 1;  // bit i: number i is free; never the shared one
static_assert(thread_numbers == std::numeric_limits<std::uint64_t>::digits && shared_thread_number == 0);

/// Returns the number when its thread ends. The lock publishes the thread's writes to the next thread with that number.
/// A forked child does not lock, because a thread of its parent may hold the mutex.
struct Holder {
  Holder() noexcept {
    // A forked child takes a number again, which may be the shared one.
    static const int asks_again = pthread_atfork(nullptr, nullptr, [] { thread_number = no_thread_number; });
    static_cast<void>(asks_again);
    const std::lock_guard lock(numbers_mutex);
    if (free_numbers == 0) return;
    number = static_cast<unsigned>(std::countr_zero(free_numbers));
    free_numbers &= free_numbers - 1;
  }
  ~Holder() {
    thread_number = shared_thread_number;  // for launches from destructors of other thread-local objects
    if (number == shared_thread_number || cuda::is_forked()) return;
    const std::lock_guard lock(numbers_mutex);
    free_numbers |= std::uint64_t{1} << number;
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  unsigned number = shared_thread_number;
};

}  // namespace

unsigned take_thread_number() noexcept {
  if (cuda::is_forked()) return shared_thread_number;
  thread_local const Holder holder;  // NOLINT(clang-diagnostic-exit-time-destructors): gives the number back
  thread_number = static_cast<std::uint8_t>(holder.number);
  return holder.number;
}

}  // namespace kiln::jit::detail
