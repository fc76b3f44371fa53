// Shows the progress of tunes: a bar on a terminal, lines elsewhere, JSON, or nothing.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "cli/output.hpp"
#include "cli/session.hpp"
#include "kiln/tuner.hpp"

namespace kiln::cli {

class TuneProgress {
 public:
  /// `ops` must outlive this object. With several devices, lines name the device.
  TuneProgress(const Globals& globals, const manifest::Catalogue& ops, std::size_t devices);
  /// Thread-safe.
  void on(const TuneStep& step);

 private:
  struct OnDevice {
    double begun = 0;   // seconds, of its present bucket
    std::string doing;  // "gemm m=64 ... 20/52"
  };
  void draw(TuneStep step);
  [[nodiscard]] std::string prefix(const TuneStep& step) const;

  const manifest::Catalogue& ops_;
  bool json_, quiet_, several_;
  std::mutex mutex_;
  std::map<int, OnDevice> devices_;
  StatusLine line_;
};

/// Returns "rms_norm rows=512 ...  [####----] 20/52  11.3/s  3 s left  best 12.35 us, default 14.02 us". `seconds`: since the bucket
/// began.
std::string progress_text(const TuneEvent& event, double seconds);

}  // namespace kiln::cli
