#include "tune/launch_choice.hpp"

#include <algorithm>
#include <array>

#include "tune/search.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {

LaunchChoice choose_launch(Bench& bench, std::size_t first_number, std::size_t size, const Kernel& kernel,
                           const std::vector<manifest::Config>& launches) {
  LaunchChoice choice;
  std::vector<Point> points;  // of the launches with a right result
  for (const manifest::Config& config : launches) {
    const std::size_t number = first_number + choice.trials.size();
    const manifest::Variant variant{&kernel.implementation, config};
    choice.trials.push_back({config, bench.admit(number, {variant, kernel.cubin, kernel.at})});
    if (choice.trials.back().admission.verdict == store::Verdict::ok) points.push_back({number, size});
  }
  std::vector<TimedCandidate> timed_candidates(launches.size());
  if (points.size() > 1) {
    std::vector<Samples> samples = bench.sample_chains(points, chain_rounds);
    for (std::size_t i = 0; i < points.size(); ++i) {
      LaunchTrial& trial = choice.trials[points[i].candidate - first_number];
      keep_times(samples[i]);
      if (samples[i].ns.empty() && samples[i].failure.empty() && samples[i].dropped > 0)
        samples[i].failure = no_times_text(samples[i].dropped);
      if (!samples[i].failure.empty()) {
        trial.admission.verdict = store::Verdict::launch_failed;
        trial.admission.reason = std::move(samples[i].failure);
      }
      timed_candidates[points[i].candidate - first_number].samples_ns = std::move(samples[i].ns);
    }
  }
  // The usual launch gave a right result before: where it fails here, it stays.
  if (!timed_candidates.front().samples_ns.empty()) choice.chosen = choose(timed_candidates).value_or(0);
  if (choice.chosen != 0) {
    choice.of_usual = ratio(timed_candidates[choice.chosen].samples_ns, timed_candidates.front().samples_ns);
    const std::array<Point, 2> both = {Point{first_number, size}, Point{first_number + choice.chosen, size}};
    std::vector<Samples> apart = bench.sample(both, apart_rounds);
    std::ranges::for_each(apart, keep_times);
    if (!apart[0].ns.empty() && !apart[1].ns.empty())
      choice.apart = ratio(apart[1].ns, apart[0].ns);
    else
      choice.chosen = 0;
  }
  for (const Point& each : points) bench.drop(each.candidate);
  return choice;
}

}  // namespace kiln::tune
