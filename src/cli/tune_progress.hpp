// What is shown while buckets are tuned: a bar on a terminal, plain lines elsewhere, JSON for machines, or nothing.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "cli/output.hpp"
#include "cli/session.hpp"
#include "kiln/options.hpp"

namespace kiln::cli {

class TuneProgress {
 public:
  /// `buckets`: how many will come, for "3/15".
  TuneProgress(const Globals& globals, std::int64_t buckets);
  /// Buckets are tuned on these devices at once, and told apart in what is shown.
  TuneProgress(const Globals& globals, std::int64_t buckets, std::span<const int> devices);
  /// Of the bucket that comes next on a device, or is passed over. This and the others may be called by a thread a device.
  void count_bucket(int device);
  void on(const TuneEvent& event, int device);
  void count_bucket() { count_bucket(devices_.begin()->first); }
  void on(const TuneEvent& event) { on(event, devices_.begin()->first); }
  void clear();

 private:
  struct OnDevice {
    std::int64_t bucket = 0;
    double begun = 0;   // seconds, of its present bucket
    std::string doing;  // "gemm m=64 ... 20/52"
  };
  void emit_json(const TuneEvent& event, int device) const;
  void draw(const TuneEvent& event, int device);
  [[nodiscard]] std::string prefix(int device) const;
  [[nodiscard]] std::string line_of_all() const;

  bool json_;
  bool quiet_;
  std::int64_t buckets_;
  std::int64_t bucket_ = 0;
  std::mutex mutex_;
  std::map<int, OnDevice> devices_;
  StatusLine line_;
};

/// "rms_norm rows=512 ...  [####----] 20/52  11.3/s  3 s left  best 12.35 us, default 14.02 us": `seconds` since the bucket began.
std::string progress_text(const TuneEvent& event, double seconds);

}  // namespace kiln::cli
