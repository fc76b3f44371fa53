// The exclusive right to tune a key, among processes.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "manifest/no_signals.hpp"
#include "store/layers.hpp"

namespace kiln::engine {

/// The term of a lease: how long a suspended holder keeps others waiting. A running holder renews each third of it, and
/// a dead one's lease is taken over before its end.
inline constexpr std::int64_t lease_seconds = 30;
inline constexpr auto lease_poll = std::chrono::milliseconds(50);

/// Held from a successful acquire() to destruction, and renewed by a thread; where the system refuses one, by
/// renew_if_due(). A forked child does not release its parent's.
class Lease {
 public:
  Lease(store::Layers& layers, std::string key, std::string holder, std::int64_t term_seconds = lease_seconds)
      : layers_(layers), key_(std::move(key)), holder_(std::move(holder)), term_seconds_(term_seconds) {}
  ~Lease() {
    if (getpid() != owner_) {  // a child of fork has neither the lease nor the thread
      if (renewing_.joinable()) renewing_.detach();
      return;
    }
    renewing_ = {};  // ends before the lease does
    if (held_) layers_.release_lease(key_, holder_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  bool acquire() {
    held_ = layers_.acquire_lease(key_, holder_, term_seconds_);
    if (!held_) return false;
    renewed_ = Clock::now();
    try {
      const manifest::NoSignals no_signals;
      renewing_ = std::jthread([this](const std::stop_token& stop) { renew(stop); });
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): renew_if_due() does it
    }
    return true;
  }
  /// Called by the thread that works under the lease, at least once in a third of the term.
  void renew_if_due() {
    if (!held_ || renewing_.joinable() || Clock::now() - renewed_ < third()) return;
    layers_.renew_lease(key_, holder_, term_seconds_);
    renewed_ = Clock::now();
  }
  /// store::File::lease_holder of the key.
  [[nodiscard]] std::string holder() { return layers_.lease_holder(key_); }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::chrono::milliseconds third() const { return std::chrono::milliseconds(1000 * term_seconds_ / 3); }

  void renew(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    while (!wake.wait_for(lock, stop, third(), [&] { return stop.stop_requested(); }))
      layers_.renew_lease(key_, holder_, term_seconds_);
  }

  store::Layers& layers_;
  std::string key_, holder_;
  std::int64_t term_seconds_;
  const pid_t owner_ = getpid();
  bool held_ = false;
  Clock::time_point renewed_{};
  std::jthread renewing_;
};

}  // namespace kiln::engine
