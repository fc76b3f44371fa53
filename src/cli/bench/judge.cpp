#include "cli/bench/judge.hpp"

namespace kiln::cli::bench {

bool is_slower(const tune::Cost& now, const store::Choice& then, double tolerance) {
  return !now.failed() && then.cost_ns > 0 && now.low_ns > then.high_ns &&
         now.median_ns > then.cost_ns * (1 + tolerance);
}

bool is_slower(std::span<const double> a_ns, std::span<const double> b_ns, double tolerance) {
  const tune::Cost ratio = tune::ratio(a_ns, b_ns);
  return !ratio.failed() && ratio.low_ns > 1 && ratio.median_ns > 1 + tolerance;
}

double change_of(const tune::Cost& now, double then_ns) {
  return now.failed() || !(then_ns > 0) ? 0.0 : now.median_ns / then_ns;
}

}  // namespace kiln::cli::bench
