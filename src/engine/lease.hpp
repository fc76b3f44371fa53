// The right to tune a key among processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "cuda/device.hpp"
#include "store/layers.hpp"

namespace kiln::engine {

inline constexpr std::int64_t lease_seconds =
    600;  // a tune of one bucket takes seconds; a dead holder is noticed before
inline constexpr auto lease_poll = std::chrono::milliseconds(50);

/// Held from acquire() until it ends. Its parent's is not a forked child's to release.
class Lease {
 public:
  Lease(store::Layers& layers, std::string key, std::string holder)
      : layers_(layers), key_(std::move(key)), holder_(std::move(holder)) {}
  ~Lease() {
    if (held_ && !cuda::is_forked()) layers_.release_lease(key_, holder_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  bool acquire() { return held_ = layers_.acquire_lease(key_, holder_, lease_seconds); }
  /// Acquires, however long another process holds it. False when `stop` said so.
  bool wait(const std::function<bool()>& stop) {
    while (!acquire()) {
      if (stop()) return false;
      std::this_thread::sleep_for(lease_poll);
    }
    return true;
  }

 private:
  store::Layers& layers_;
  std::string key_, holder_;
  bool held_ = false;
};

}  // namespace kiln::engine
