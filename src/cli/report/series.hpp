// Records that differ in one length alone: what a curve is drawn through.
#pragma once

#include <string>
#include <vector>

#include "cli/report/content.hpp"

namespace kiln::cli::report {

struct Series {
  const manifest::Op* op = nullptr;
  std::size_t axis = 0;  // the length, an index into op->axes
  std::string fixed;     // "n=4096 k=4096 dtype=bf16 layout=nt": all else
  std::string device_class, regime;
  std::vector<const Entry*> points;  // by length, at least one
  [[nodiscard]] std::int64_t length(const Entry& entry) const { return entry.bucket.axes[axis]; }
  [[nodiscard]] const manifest::Axis& length_axis() const { return op->axes[axis]; }
};

/// By op, then device and regime, then what is fixed. An op's length is the axis, not of policy `exact` if there is another, that
/// takes the most values. Entries without an op, and without a cost, are left out.
std::vector<Series> series_of(const Content& content);

/// "gemm · n=4096 k=4096 ..." and, where there are several, the device; "· warm L2" for that regime.
std::string title_of(const Series& series, const Content& content);

}  // namespace kiln::cli::report
