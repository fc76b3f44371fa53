// Logarithmic axes: where a value lies, and which values to name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cli::report {

struct Interval {
  double low = 0, high = 0;  // empty while high is 0
  [[nodiscard]] bool empty() const noexcept { return high <= 0; }
  /// Takes in a positive, finite value; others are skipped.
  void add(double value) noexcept;
  /// Wider by this factor at both ends.
  [[nodiscard]] Interval widened(double factor) const noexcept { return {low / factor, high * factor}; }
};

struct Tick {
  double value = 0;
  bool named = true;  // else a line without a number
};

/// Pixels `from` to `to` show `range`, which is not empty.
class LogAxis {
 public:
  LogAxis(Interval range, double from, double to);
  [[nodiscard]] double at(double value) const;
  [[nodiscard]] const Interval& range() const noexcept { return range_; }

 private:
  Interval range_;
  double from_, scale_;
};

/// Powers of ten, with 2 and 5 between them where they fit; never more than about twenty.
std::vector<Tick> decimal_ticks(const Interval& range);
/// Powers of two, evenly spaced, at most `most`.
std::vector<Tick> binary_ticks(const Interval& range, int most);

std::string short_time(double ns);                            // "5 µs": for an axis
std::string short_length(double length);                      // "4096", "128Ki", "4Mi"
std::string short_rate(double per_second, const char* unit);  // "10 TFLOP/s", "500 GB/s"
std::string short_number(double value);                       // "0.1", "100", "1e+06"

}  // namespace kiln::cli::report
