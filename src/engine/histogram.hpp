// How often real problems are launched: samples in a table of fixed size. Counting takes no lock, allocation, string, file or clock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/zeroed_array.hpp"
#include "jit/thread_number.hpp"
#include "kiln/problem.hpp"

namespace kiln::engine {

class Histogram {
 public:
  /// One launch in this many is a sample, and stands for as many.
  static constexpr std::int64_t stride = 16;
  static constexpr std::size_t capacity = 2048;  // distinct problems between two takes

  struct Row {
    std::uint32_t op = 0;
    Problem problem;
    std::int64_t launches = 0;
  };

  /// Whether the launch that is the `count`th (from 0) of its counter is a sample. The multiples of the golden ratio fall evenly
  /// into each stretch of the unit interval whichever period they are looked at with (Weyl's theorem), so that launches which
  /// come in a rhythm, the layers of a model say, are sampled in their true proportions: each 16th launch would meet one layer alone.
  [[nodiscard]] static bool is_sample(std::int64_t count) noexcept {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;  // of 2^64
    return (static_cast<std::uint64_t>(count) + 1) * golden <
           std::numeric_limits<std::uint64_t>::max() / static_cast<std::uint64_t>(stride);
  }

  /// Counts `stride` launches. From any thread; never waits for another, and mostly writes to memory of this thread's alone.
  void add(std::uint32_t op, const Problem& problem) noexcept;
  /// What was counted since the last take, a row a problem. One thread at a time; waits for counts under way, which are brief.
  std::vector<Row> take();
  /// Whether it is time to take.
  [[nodiscard]] bool is_half_full() const noexcept;
  /// Launches that there was no room for.
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
  /// The counts of threads of one number on their way to a table, so that threads which launch the same problems meet there seldom.
  struct alignas(128) Stage {
    bool busy;
    std::array<Row, 16> rows;  // by hash; free: 0 launches
    [[nodiscard]] std::atomic_ref<bool> shared_busy() noexcept { return std::atomic_ref(busy); }
  };
  /// Adds to the table.
  void add_to_table(const Row& row) noexcept;
  void empty(Stage& stage) noexcept;
  /// The table that is written to; it is not taken before leave().
  Table& enter() noexcept;
  static void leave(Table& table) noexcept { table.writers.fetch_sub(1, std::memory_order_release); }
  static Slot* find_or_claim(Table& table, std::uint32_t op, const Problem& problem) noexcept;

  ZeroedArray<Stage> stages_{jit::thread_numbers};
  std::array<Table, 2> tables_;         // one is written while the other is taken
  std::atomic<std::size_t> active_{0};  // index into tables_
  std::atomic<std::int64_t> lost_{0};
};

}  // namespace kiln::engine
