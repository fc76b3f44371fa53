// Launch counts, on separate cache lines for each thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "answer/miss.hpp"
#include "jit/thread_number.hpp"
#include "kiln/engine.hpp"
#include "store/file.hpp"

namespace kiln::plan {

class Counters {
 public:
  /// Returns the count before, of this thread's shard.
  std::int64_t count(Origin origin) noexcept {
    const unsigned thread = jit::thread_number();
    if (thread == jit::shared_thread_number)
      return shards_[thread].origins[static_cast<std::size_t>(origin)].fetch_add(1, std::memory_order_relaxed);
    return count_own(origin, thread);
  }
  /// count() for the calling thread's number, which no other thread has.
  std::int64_t count_own(Origin origin, unsigned thread) noexcept {
    std::atomic<std::int64_t>& counter = shards_[thread].origins[static_cast<std::size_t>(origin)];
    const std::int64_t before = counter.load(std::memory_order_relaxed);  // no other thread writes it
    counter.store(before + 1, std::memory_order_relaxed);
    return before;
  }
  /// Undoes a count of the same thread.
  void take_back(Origin origin) noexcept {
    shards_[jit::thread_number()].origins[static_cast<std::size_t>(origin)].fetch_sub(1, std::memory_order_relaxed);
  }
  void count_constraint_fallback() noexcept { constraint_fallbacks_.fetch_add(1, std::memory_order_relaxed); }
  void count_stale() noexcept { stale_.fetch_add(1, std::memory_order_relaxed); }
  void count(answer::Miss miss) noexcept {
    misses_[static_cast<std::size_t>(miss)].fetch_add(1, std::memory_order_relaxed);
  }
  void count_tune() noexcept { tunes_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t launches(Origin origin) const noexcept;
  /// What was counted here. The caller adds compiles and the files' quarantined rows.
  [[nodiscard]] Stats read() const noexcept;
  /// Rows for the overlay: launches by origin and misses by reason, without those that are 0.
  [[nodiscard]] std::vector<store::Usage> usage() const;

 private:
  struct alignas(128) Shard {  // two lines: processors fetch them in pairs
    std::array<std::atomic<std::int64_t>, origin_count> origins{};
  };
  std::array<Shard, jit::thread_numbers> shards_;
  std::atomic<std::int64_t> constraint_fallbacks_{0}, stale_{0}, tunes_{0};
  std::array<std::atomic<std::int64_t>, answer::miss_kinds> misses_{};
};

}  // namespace kiln::plan
