// Compares configs of one problem: compiles them, verifies them on fresh data, and times them in turns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/tools.hpp"
#include "store/record.hpp"
#include "tune/bench.hpp"
#include "tune/search.hpp"

namespace kiln::cli::bench {

struct Timed {
  store::Verdict verdict = store::Verdict::not_timed;
  std::string reason;              // for every verdict but ok
  std::vector<double> samples_ns;  // one a round; the samples of a round are taken one after the other
  tune::Cost cost;                 // failed() unless the verdict is ok
  [[nodiscard]] bool ok() const noexcept { return verdict == store::Verdict::ok; }
};

/// Returns a result for each contender, measured at the bucket's sizes, in a worker process if there is one. The
/// context must be current. Throws as tune::Bench and Cubins do; the failure of one contender is its verdict.
std::vector<Timed> contest(Tools& tools, const manifest::Bucket& at, std::span<const manifest::Variant> contenders);

/// True when `now` is slower by more than `tolerance` (0.05 for 5 %) and the 95 % intervals are disjoint. False for a
/// stored cost of 0.
bool is_slower(const tune::Cost& now, const store::Choice& then, double tolerance);
/// The same for two configs that were timed in turns, by the median and the interval of their ratio.
bool is_slower(std::span<const double> a_ns, std::span<const double> b_ns, double tolerance);

/// Returns now / then, or 0 when one of them is not known.
double change_of(const tune::Cost& now, double then_ns);

}  // namespace kiln::cli::bench
