// When what failed for a moment is tried again.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace kiln::engine {

/// At once, and after each failure twice as much later: launches that ask meanwhile do not pay for a try.
class Retry {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds first_pause{100}, longest_pause{60'000};

  [[nodiscard]] bool is_due(Clock::time_point now) const noexcept {
    return now >= not_before_.load(std::memory_order_relaxed);
  }
  /// One thread at a time.
  void failed(Clock::time_point now) noexcept {
    not_before_.store(now + pause_, std::memory_order_relaxed);
    pause_ = std::min(2 * pause_, longest_pause);
  }

 private:
  std::atomic<Clock::time_point> not_before_{Clock::time_point::min()};
  std::chrono::milliseconds pause_ = first_pause;
};

}  // namespace kiln::engine
