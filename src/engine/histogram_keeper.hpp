// Brings what the histogram counted to the overlay, at leisure: a thread of its own does, never one that launches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "engine/histogram.hpp"
#include "manifest/op.hpp"
#include "store/file.hpp"

namespace kiln::engine {

struct HistogramPace {
  std::chrono::milliseconds flush{60'000};
  std::chrono::milliseconds glance{5'000};  // a histogram found half full is flushed at once
};

class HistogramKeeper {
 public:
  /// `overlay` takes the rows; both outlive this.
  HistogramKeeper(std::span<const manifest::Op> ops, store::File& overlay, HistogramPace pace = {})
      : ops_(ops), overlay_(overlay), pace_(pace) {}
  /// Flushes.
  ~HistogramKeeper();
  HistogramKeeper(const HistogramKeeper&) = delete;
  HistogramKeeper& operator=(const HistogramKeeper&) = delete;

  /// Begins the thread, once: the miss path calls it when there is something to launch.
  void start();
  /// Adds what was counted to the overlay. What cannot be written now is kept for the next time, within bounds, and nothing is said:
  /// only counts are at stake.
  void flush() noexcept;
  [[nodiscard]] std::int64_t lost() const noexcept { return histogram.lost() + lost_.load(); }

  Histogram histogram;

 private:
  void serve(const std::stop_token& stop);
  void collect();
  void write();

  std::span<const manifest::Op> ops_;
  store::File& overlay_;
  HistogramPace pace_;
  std::mutex flushing_;                                                    // guards what follows
  std::map<std::pair<std::uint32_t, std::string>, std::int64_t> pending_;  // launches by op and problem
  std::int64_t rows_in_file_ = -1;                                         // at most; -1: not asked yet
  std::atomic<std::int64_t> lost_{0};
  std::once_flag started_;
  std::mutex sleeping_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace kiln::engine
