// Writes the histogram's counts to the overlay, on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "manifest/op.hpp"
#include "plan/histogram.hpp"
#include "store/file.hpp"

namespace kiln::plan {

struct HistogramPace {
  std::chrono::milliseconds flush{60'000};
  std::chrono::milliseconds glance{5'000};  // how often a half full histogram is looked for, which is flushed at once
};

class HistogramKeeper {
 public:
  /// `ops` and `overlay` outlive this.
  HistogramKeeper(std::span<const manifest::Op> ops, store::File& overlay, HistogramPace pace = {})
      : ops_(ops), overlay_(overlay), pace_(pace) {}
  /// Calls flush().
  ~HistogramKeeper();
  HistogramKeeper(const HistogramKeeper&) = delete;
  HistogramKeeper& operator=(const HistogramKeeper&) = delete;

  /// Begins the thread, once. The miss path calls this before the first launch. Where the system refuses a thread,
  /// counts stay in memory until a later call begins it, or the destructor writes them.
  void start() noexcept;
  /// Adds the counts to the overlay. What cannot be written is kept for the next call, up to a bound, without a
  /// warning.
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
  std::mutex flushing_;                                                    // guards the three members below
  std::map<std::pair<std::uint32_t, std::string>, std::int64_t> pending_;  // launches by op and problem
  std::int64_t rows_in_file_ = -1;                                         // an upper bound; -1: not known yet
  std::atomic<std::int64_t> lost_{0};
  std::once_flag started_;
  std::mutex sleeping_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace kiln::plan
