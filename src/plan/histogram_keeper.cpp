#include "plan/histogram_keeper.hpp"

#include <system_error>

#include "manifest/no_signals.hpp"
#include "manifest/problem.hpp"

namespace kiln::plan {
namespace {

/// Once a file holds this many problems, further ones are counted at their bucket's upper edge, of which there are few.
constexpr std::int64_t most_rows = 16384;
constexpr std::size_t most_pending = 4 * Histogram::capacity;

}  // namespace

HistogramKeeper::~HistogramKeeper() {
  thread_ = {};
  flush();
}

void HistogramKeeper::start() noexcept {
  try {
    const manifest::NoSignals no_signals;
    std::call_once(started_, [this] { thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); }); });
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): the next call tries again
  }
}

void HistogramKeeper::serve(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(sleeping_);
  auto due = Clock::now() + pace_.flush;
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, std::min(pace_.flush, pace_.glance), [] { return false; });
    if (stop.stop_requested() || (Clock::now() < due && !histogram.is_half_full())) continue;
    flush();
    due = Clock::now() + pace_.flush;
  }
}

void HistogramKeeper::flush() noexcept {
  const std::lock_guard lock(flushing_);
  try {
    collect();
    if (!pending_.empty()) write();
  } catch (const std::exception&) {
    if (pending_.size() <= most_pending) return;
    for (const auto& [problem, launches] : pending_) lost_ += launches;
    pending_.clear();
  }
}

void HistogramKeeper::collect() {
  for (const Histogram::Row& row : histogram.take()) {
    const manifest::Op& op = ops_[row.op];
    const bool in_full = rows_in_file_ < most_rows;
    const Problem counted = in_full ? row.problem : manifest::bucket_of(op, row.problem);
    pending_[{row.op, manifest::to_string(op, counted)}] += row.launches;
  }
}

void HistogramKeeper::write() {
  std::vector<store::HistogramRow> rows;
  for (const auto& [problem, launches] : pending_) rows.push_back({ops_[problem.first].name, problem.second, launches});
  overlay_.add_to_histogram(rows);
  const auto added = static_cast<std::int64_t>(rows.size());
  pending_.clear();
  // Added rows may have existed already, so the file is asked once the bound is reached.
  if (rows_in_file_ < 0 || rows_in_file_ + added >= most_rows)
    rows_in_file_ = overlay_.stats().histogram_rows;
  else
    rows_in_file_ += added;
}

}  // namespace kiln::plan
