#include "contest.hpp"

#include <algorithm>
#include <cmath>

namespace bench {
namespace {

constexpr std::int64_t warm_rounds = 3;
constexpr double budget_ns = 100e6, flush_ns = 40e3;  // a flush of an H200's L2 takes about that
constexpr std::int64_t least_rounds = 11, most_rounds = 41;

double rounded(double value, double to) { return std::round(value * to) / to; }

}  // namespace

kiln::tune::Cost Contender::cost() const {
  std::vector<double> sorted = samples_ns;
  return kiln::tune::summarise(sorted);
}

kiln::tune::Check verify(kiln::tune::VerificationCase& tensors, const kiln::tune::Launch& launch, CUstream stream) {
  tensors.poison(stream);
  launch(stream);
  return tensors.check(stream);
}

void sample(std::vector<Contender>& all, std::int64_t rounds, kiln::tune::Stopwatch& stopwatch, CUstream stream) {
  std::vector<kiln::tune::Launch> launches;
  for (const Contender& each : all) launches.push_back(each.launch);
  if (launches.empty()) return;
  for (Contender& each : all) each.samples_ns.clear();
  kiln::tune::in_batches(rounds, 0, [&](std::int64_t now) {
    const auto samples = stopwatch.sample(launches, now, stream);
    kiln::tune::BatchTime busy;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].samples_ns.insert(all[i].samples_ns.end(), samples[i].begin(), samples[i].end());
      busy.add(samples[i]);
    }
    return busy;
  });
}

void time(std::vector<Contender>& all, kiln::tune::Stopwatch& stopwatch, CUstream stream) {
  sample(all, warm_rounds, stopwatch, stream);
  double round_ns = 0;
  for (const Contender& each : all) round_ns += each.cost().median_ns + flush_ns;
  const auto affordable = static_cast<std::int64_t>(budget_ns / round_ns);
  sample(all, std::clamp(affordable, least_rounds, most_rounds) | 1, stopwatch, stream);  // odd: the median is a sample
}

void put_time(kiln::cli::Json& line, const std::string& name, const Contender& contender, double flops) {
  const kiln::tune::Cost cost = contender.cost();
  line[name + "_ns"] = std::llround(cost.median_ns);
  line[name + "_low_ns"] = std::llround(cost.low_ns);
  line[name + "_high_ns"] = std::llround(cost.high_ns);
  line[name + "_tflop_s"] = rounded(flops / cost.median_ns / 1e3, 100);
}

void put_ratio(kiln::cli::Json& line, const Contender& over, const std::string& over_name, const Contender& under) {
  const kiln::tune::Cost ratio = kiln::tune::ratio(over.samples_ns, under.samples_ns);
  const std::string name = over_name + "_over_" + under.name;
  line[name] = rounded(ratio.median_ns, 1e4);
  line[name + "_low"] = rounded(ratio.low_ns, 1e4);
  line[name + "_high"] = rounded(ratio.high_ns, 1e4);
}

}  // namespace bench
