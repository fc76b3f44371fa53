#include "plan/launches_in_flight.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace kiln::plan {
namespace {

long membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0); }

bool offers_barrier() noexcept {
  constexpr long needed = MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
  const long offered = membarrier(MEMBARRIER_CMD_QUERY);  // negative where the kernel has no such call
  return offered >= 0 && (offered & needed) == needed;
}

template <class Condition>
void wait_until(Condition holds) noexcept {
  for (int tries = 0; !holds(); ++tries)
    if (tries < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

LaunchesInFlight::LaunchesInFlight() noexcept : has_membarrier_(offers_barrier()) {}

bool LaunchesInFlight::wait() noexcept {
  const std::lock_guard lock(waiting_);
  if (has_membarrier_) {
    // Registering takes some ten milliseconds in a process with threads, which an engine's start must not wait for.
    if (!is_registered_) is_registered_ = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    if (!is_registered_ || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) return false;
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (Slot& slot : own_) {
    const std::uint32_t found = slot.entered.load(std::memory_order_acquire);
    if (found % 2 == 1) wait_until([&] { return slot.entered.load(std::memory_order_acquire) != found; });
  }
  // A thread may count itself in under a phase that has passed since it asked, so both phases must run empty.
  wait_for_shared();
  wait_for_shared();
  return true;
}

void LaunchesInFlight::wait_for_shared() noexcept {
  const unsigned phase = phase_.load(std::memory_order_relaxed);
  phase_.store(1 - phase, std::memory_order_seq_cst);
  wait_until([&] { return shared_[phase].load(std::memory_order_seq_cst) == 0; });
}

}  // namespace kiln::plan
