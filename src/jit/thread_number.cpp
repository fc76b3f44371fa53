#include "jit/thread_number.hpp"

#include <bit>
#include <limits>
#include <mutex>

namespace kiln::jit::detail {
namespace {

// Of the process: a thread launches on several engines. Both are constant-initialised and trivially destroyed, since threads
// may end after statics are gone.
std::mutex numbers_mutex;
std::uint64_t free_numbers = std::numeric_limits<std::uint64_t>::max() - 1;  // a bit a number, all but the shared one
static_assert(thread_numbers == std::numeric_limits<std::uint64_t>::digits && shared_thread_number == 0);

/// Gives the number back when its thread ends. The lock is what the next thread sees the counts by.
struct Holder {
  Holder() noexcept {
    const std::lock_guard lock(numbers_mutex);
    if (free_numbers == 0) return;
    number = static_cast<unsigned>(std::countr_zero(free_numbers));
    free_numbers &= free_numbers - 1;
  }
  ~Holder() {
    thread_number = shared_thread_number;  // for what other objects of the thread still launch when they are destroyed
    if (number == shared_thread_number) return;
    const std::lock_guard lock(numbers_mutex);
    free_numbers |= std::uint64_t{1} << number;
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  unsigned number = shared_thread_number;
};

}  // namespace

unsigned take_thread_number() noexcept {
  thread_local const Holder holder;
  thread_number = static_cast<std::uint8_t>(holder.number);
  return holder.number;
}

}  // namespace kiln::jit::detail
