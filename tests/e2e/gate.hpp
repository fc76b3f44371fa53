// One thread waits for what another opens.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace e2e {

constexpr auto patience = std::chrono::seconds(120);

/// Something that one thread waits for and another opens.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace e2e
