// Counts launches by real problem, from samples in a table of fixed size. Counting takes no lock, allocation, string,
// file or clock.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "jit/thread_number.hpp"
#include "kiln/problem.hpp"

namespace kiln::plan {

/// Throws Error(out_of_memory).
void* map_zeros(std::size_t bytes);

/// An array of zeros whose pages are allocated when they are first written. A page costs a process's start some
/// microseconds.
template <class Element>
class ZeroedArray {
 public:
  static_assert(std::is_aggregate_v<Element> && std::is_trivially_destructible_v<Element> && alignof(Element) <= 4096);

  explicit ZeroedArray(std::size_t size) : size_(size) {
    first_ = static_cast<Element*>(map_zeros(size * sizeof(Element)));
  }
  ~ZeroedArray() { munmap(first_, size_ * sizeof(Element)); }
  ZeroedArray(const ZeroedArray&) = delete;
  ZeroedArray& operator=(const ZeroedArray&) = delete;

  [[nodiscard]] Element& operator[](std::size_t index) noexcept { return first_[index]; }
  [[nodiscard]] Element* begin() noexcept { return first_; }
  [[nodiscard]] Element* end() noexcept { return first_ + size_; }

 private:
  std::size_t size_;
  Element* first_ = nullptr;
};

class Histogram {
 public:
  /// One launch in this many is a sample, which counts for all of them.
  static constexpr std::int64_t stride = 16;
  static constexpr std::size_t capacity = 2048;  // distinct problems between two takes

  struct Row {
    std::uint32_t op = 0;
    Problem problem;
    std::int64_t launches = 0;
  };

  /// Whether launch number `count` (from 0) of a counter is a sample. The multiples of the golden ratio modulo 1 are
  /// equidistributed at every period (Weyl's theorem). Periodic launches, such as a model's layers, are therefore
  /// sampled in their true proportions. Every 16th launch could be the same layer each time.
  [[nodiscard]] static bool is_sample(std::int64_t count) noexcept {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;  // of 2^64
    return (static_cast<std::uint64_t>(count) + 1) * golden <
           std::numeric_limits<std::uint64_t>::max() / static_cast<std::uint64_t>(stride);
  }

  /// Counts `stride` launches. Never waits for another thread, and mostly writes memory of this thread alone.
  void add(std::uint32_t op, const Problem& problem) noexcept;
  /// Returns the counts since the last call, a row a problem. One thread at a time; waits for add() calls that are
  /// running.
  std::vector<Row> take();
  /// Whether take() is due before the table is full.
  [[nodiscard]] bool is_half_full() const noexcept;
  /// Launches that were dropped because the table was full.
  [[nodiscard]] std::int64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::uint64_t tag;  // 0: free; 1: its problem is being written; else the hash
    std::int64_t launches;
    Problem problem;
    std::uint32_t op;
    [[nodiscard]] std::atomic_ref<std::uint64_t> shared_tag() noexcept { return std::atomic_ref(tag); }
    [[nodiscard]] std::atomic_ref<std::int64_t> shared_launches() noexcept { return std::atomic_ref(launches); }
  };
  struct Table {
    std::atomic<std::int64_t> writers{0};
    std::atomic<std::size_t> used{0};
    ZeroedArray<Slot> slots{capacity};
  };
  /// Buffers the counts of the threads of one number, so that threads seldom write the same slot of a table.
  struct alignas(128) Stage {
    bool busy;
    std::array<Row, 16> rows;  // by hash; one of 0 launches is free
    [[nodiscard]] std::atomic_ref<bool> shared_busy() noexcept { return std::atomic_ref(busy); }
  };
  void add_to_table(const Row& row) noexcept;
  void empty(Stage& stage) noexcept;
  /// Returns the active table, which take() leaves alone until leave().
  Table& enter() noexcept;
  static void leave(Table& table) noexcept { table.writers.fetch_sub(1, std::memory_order_release); }
  static Slot* find_or_claim(Table& table, std::uint32_t op, const Problem& problem) noexcept;

  ZeroedArray<Stage> stages_{jit::thread_numbers};
  std::array<Table, 2> tables_;         // one is written while the other is taken
  std::atomic<std::size_t> active_{0};  // index into tables_
  std::atomic<std::int64_t> lost_{0};
};

}  // namespace kiln::plan
