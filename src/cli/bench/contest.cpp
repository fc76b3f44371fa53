#include "cli/bench/contest.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "jit/executable.hpp"
#include "kiln/error.hpp"

namespace kiln::cli::bench {
namespace {

constexpr std::int64_t warm_rounds = 3;
constexpr double budget_ns = 100e6, flush_ns = 40e3;  // about the time to flush an H200's L2
constexpr std::int64_t least_rounds = 11, most_rounds = 41;

class Contest {
 public:
  Contest(Tools& tools, const manifest::Bucket& at) : tools_(tools), bucket_(at) {
    const tune::BenchSettings settings{bucket_, tools.context.info(), tools.arch()};
    bench_ = tools.worker ? tools.worker->bench(settings, tools.cubins) : tune::local_bench(settings, tools.cubins);
    bench_->set_sizes({bucket_.edge});
  }

  Timed admit(std::size_t number, const manifest::Variant& contender) {
    Timed timed;
    try {
      const auto cubin = tools_.cubins.get(jit::specialise(bucket_, contender, bucket_.edge, tools_.arch()));
      const auto admission = bench_->admit(number, {contender, cubin.cubin, bucket_.edge});
      timed.verdict = admission.verdict;
      timed.reason = admission.reason;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::compile_failed) throw;
      timed.verdict = store::Verdict::compile_failed;
      timed.reason = error.what();
    }
    return timed;
  }

  void time(std::vector<Timed>& all) {
    sample(all, warm_rounds);  // warms the instruction caches, and the clocks of an idle device
    double a_round_ns = 0;
    for (Timed& each : all) {
      if (each.ok()) a_round_ns += *std::min_element(each.samples_ns.begin(), each.samples_ns.end()) + flush_ns;
      each.samples_ns.clear();
    }
    const auto affordable = static_cast<std::int64_t>(budget_ns / std::max(a_round_ns, 1.0));
    sample(all, std::clamp(affordable, least_rounds, most_rounds) | 1);  // odd: the median is a sample
    for (Timed& each : all) {
      std::vector<double> sorted = each.samples_ns;
      if (each.ok()) each.cost = tune::summarise(sorted);
    }
  }

 private:
  void sample(std::vector<Timed>& all, std::int64_t rounds) {
    std::vector<tune::Point> points;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].ok()) points.push_back({.candidate = i, .size = 0});
    if (points.empty()) return;
    auto taken = bench_->sample(points, rounds);
    for (std::size_t i = 0; i < points.size(); ++i) {
      Timed& timed = all[points[i].candidate];
      tune::keep_times(taken[i]);
      timed.samples_ns = std::move(taken[i].ns);
      if (!timed.samples_ns.empty()) continue;
      timed.verdict = store::Verdict::launch_failed;
      timed.reason = taken[i].dropped > 0 ? tune::no_times_text(taken[i].dropped) : taken[i].failure;
    }
  }

  Tools& tools_;
  const manifest::Bucket bucket_;  // of the sizes that are timed
  std::unique_ptr<tune::Bench> bench_;
};

}  // namespace

std::vector<Timed> contest(Tools& tools, const manifest::Bucket& at, std::span<const manifest::Variant> contenders) {
  Contest contest(tools, at);
  std::vector<Timed> all;
  for (std::size_t i = 0; i < contenders.size(); ++i) all.push_back(contest.admit(i, contenders[i]));
  contest.time(all);
  return all;
}

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
