// Keeps work within a share of a device's time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>

namespace kiln::engine {

/// After work, the device is left idle until the work was no more than its share of the time since its begin. Earlier
/// idle time allows no burst later. One thread at a time, unless a member says otherwise.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;
  /// 0 < share. A share of 1 or more never waits.
  explicit Pacer(double share) : share_(share) {}

  /// Returns how long to leave the device idle after `ns` of work that ended `now`.
  std::chrono::nanoseconds owe(double ns, Clock::time_point now) noexcept {
    const auto begun = now - std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
    constexpr double longest_ns = 3e16;  // a year, however small the share
    const double taken = std::min(ns / std::min(share_, 1.0), std::max(ns, longest_ns));
    free_at_ = std::max(free_at_, begun) + std::chrono::nanoseconds(static_cast<std::int64_t>(taken));
    return std::max<std::chrono::nanoseconds>(free_at_ - now, std::chrono::nanoseconds(0));
  }

  /// Waits for owe(), or until a stop is requested.
  void spend(double ns, const std::stop_token& stop) {
    spent_ns_.store(spent_ns_.load() + ns);  // one thread writes
    const auto wait = owe(ns, Clock::now());
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, wait, [] { return false; });
  }

  /// The sum of all work. From any thread.
  [[nodiscard]] double spent_ns() const noexcept { return spent_ns_.load(); }

 private:
  double share_;
  Clock::time_point free_at_{};  // when all work so far will be within the share
  std::atomic<double> spent_ns_{0};
  std::mutex mutex_;
  std::condition_variable_any wake_;
};

}  // namespace kiln::engine
