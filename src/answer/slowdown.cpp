#include "answer/slowdown.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "answer/guess.hpp"
#include "answer/model.hpp"

namespace kiln::answer {
namespace {

constexpr std::size_t most_known = 24;
constexpr std::size_t most_guessed = 8;      // records; guesses for one take milliseconds
constexpr std::size_t fewest_pairs = 3;      // of records, for a median
constexpr double about_as_far = 0.5 + 1e-9;  // doublings

std::optional<double> median(std::vector<double> values, std::size_t fewest) {
  if (values.size() < fewest) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Returns the config with the launch that a search tries: other records' candidates lack the launch that a record
/// chose afterwards.
std::string as_searched(const manifest::Op& op, std::string_view name, std::string_view config) {
  const manifest::Implementation* implementation = op.find(name);
  if (implementation == nullptr) return std::string(config);
  auto parsed = manifest::parse_config(*implementation, config);
  if (!parsed) return std::string(config);
  return manifest::to_string(*implementation, manifest::kernel_config(*implementation, std::move(*parsed)));
}

/// Returns the time of the candidates that `is_one` selects over the best candidate's: the geometric mean over the
/// lengths at which one of them was timed.
std::optional<double> slowdown_of(const store::Record& record,
                                  const std::function<bool(const store::TriedCandidate&)>& is_one) {
  struct Length {
    double best = std::numeric_limits<double>::infinity(), own = best;
  };
  std::map<std::string_view, Length> lengths;
  for (const store::TriedCandidate& each : record.candidates) {
    if (each.verdict != store::Verdict::ok || !(each.cost_ns > 0)) continue;
    Length& length = lengths[each.sizes];
    length.best = std::min(length.best, each.cost_ns);
    if (is_one(each)) length.own = each.cost_ns;
  }
  double sum = 0;
  int timed = 0;
  for (const auto& [sizes, length] : lengths) {
    if (!std::isfinite(length.own)) continue;
    sum += std::log(length.own / length.best);
    ++timed;
  }
  return timed > 0 ? std::optional(std::exp(sum / timed)) : std::nullopt;
}

}  // namespace

std::vector<KnownRecord> known_near(store::Layers& layers, const manifest::Bucket& bucket) {
  std::vector<KnownRecord> known;
  for (store::Record& record : neighbours(layers, bucket, most_known)) {
    const auto own = manifest::parse_bucket(*bucket.op, record.bucket);
    const auto facts = manifest::DeviceFacts::from_device_class(record.device_class);
    if (own && facts) known.push_back({std::move(record), *own, *facts});
  }
  return known;
}

std::optional<double> transfer_slowdown(const manifest::Op& op, std::span<const KnownRecord> known, double distance) {
  std::vector<double> slowdowns;
  for (const KnownRecord& from : known) {
    for (const KnownRecord& to : known) {
      const double apart = axis_distance(op, from.bucket, to.bucket) + device_distance(from.device, to.device);
      if (&from == &to || std::abs(apart - distance) > about_as_far) continue;
      const store::Choice& winner = from.record.at_edge();
      const std::string config = as_searched(op, winner.implementation, winner.config);
      const auto slowdown = slowdown_of(to.record, [&](const store::TriedCandidate& each) {
        return each.implementation == winner.implementation && each.config == config;
      });
      if (slowdown) slowdowns.push_back(*slowdown);
    }
  }
  return median(std::move(slowdowns), fewest_pairs);
}

std::optional<double> default_slowdown(const manifest::Op& op, std::span<const KnownRecord> known,
                                       const manifest::Variant& standing_in) {
  std::vector<double> slowdowns;
  for (const KnownRecord& each : known) {
    const double best_ns = each.record.at_edge().cost_ns;
    if (!(each.record.baseline_ns > 0) || !(best_ns > 0)) continue;
    if (default_for({op, each.device}, each.bucket) == standing_in)
      slowdowns.push_back(each.record.baseline_ns / best_ns);
  }
  return median(std::move(slowdowns), 1);
}

std::optional<double> guess_slowdown(const manifest::Op& op, std::span<const KnownRecord> known, Regime regime) {
  std::vector<double> slowdowns;
  for (const KnownRecord& each : known.first(std::min(known.size(), most_guessed))) {
    if (each.record.candidates.empty()) continue;
    const std::vector<Guess> guesses = guesses_for({{op, each.device, regime}, each.bucket});
    const auto slowdown = slowdown_of(each.record, [&](const store::TriedCandidate& candidate) {
      const auto at = manifest::parse_open_sizes(op, each.bucket, candidate.sizes);
      return at && std::ranges::any_of(guesses, [&](const Guess& guess) {
               return guess.region.contains(op, *at) && guess.of.implementation->name == candidate.implementation &&
                      manifest::to_string(*guess.of.implementation, guess.of.config) == candidate.config;
             });
    });
    if (slowdown) slowdowns.push_back(*slowdown);
  }
  return median(std::move(slowdowns), 1);
}

std::optional<Benchmarked> benchmarked_slowdown(const manifest::Bucket& bucket, double distance) {
  if (bucket.op->name != "gemm" || bucket.op->folder != "built-in" || bucket.device->sm() != 90 ||
      bucket.regime != Regime::cold_l2)
    return std::nullopt;
  // bench/results/tuner-*/pairs_*.json, which tests/answer/slowdown_test.cpp compares.
  if (distance <= 2) return Benchmarked{1.026, 1.16, 268};
  if (distance <= 3.5) return Benchmarked{1.068, 1.39, 43};
  return std::nullopt;
}

}  // namespace kiln::answer
