// What is shown while buckets are tuned: a bar on a terminal, plain lines elsewhere, JSON for machines, or nothing.
#pragma once

#include <cstdint>
#include <string>

#include "cli/output.hpp"
#include "cli/session.hpp"
#include "kiln/options.hpp"

namespace kiln::cli {

class TuneProgress {
 public:
  /// `buckets`: how many will come, for "3/15".
  TuneProgress(const Globals& globals, std::int64_t buckets);
  /// Of the bucket that comes next, or is passed over.
  void count_bucket() noexcept { ++bucket_; }
  void on(const TuneEvent& event);
  void clear() { line_.clear(); }

 private:
  void emit_json(const TuneEvent& event) const;
  void draw(const TuneEvent& event);
  [[nodiscard]] std::string prefix() const;

  bool json_;
  bool quiet_;
  std::int64_t buckets_;
  std::int64_t bucket_ = 0;
  double begun_ = 0;  // seconds, of the present bucket
  StatusLine line_;
};

/// "rms_norm rows=512 ...  [####----] 20/52  11.3/s  3 s left  best 12.35 us, default 14.02 us": `seconds` since the bucket began.
std::string progress_text(const TuneEvent& event, double seconds);

}  // namespace kiln::cli
