#include "tune/slowdown.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tune/guess.hpp"

namespace kiln::tune {
namespace {

constexpr std::size_t most_known = 24;
constexpr std::size_t fewest_pairs = 3;      // fewer say nothing
constexpr double about_as_far = 0.5 + 1e-9;  // doublings

std::optional<double> median(std::vector<double> values, std::size_t fewest) {
  if (values.size() < fewest) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The config as a search tries it: a launch that a record chose afterwards stands among its own candidates alone.
std::string as_searched(const spec::Op& op, std::string_view name, std::string_view config) {
  const spec::Implementation* implementation = op.find(name);
  if (implementation == nullptr) return std::string(config);
  auto parsed = spec::parse_config(*implementation, config);
  if (!parsed) return std::string(config);
  return spec::to_string(*implementation, spec::kernel_config(*implementation, std::move(*parsed)));
}

/// What a config took among a record's candidates over the least that one took.
std::optional<double> fared(const store::Record& record, std::string_view implementation, std::string_view config) {
  double best = std::numeric_limits<double>::infinity(), own = best;
  for (const store::Candidate& each : record.candidates) {
    if (each.verdict != store::Verdict::ok || !(each.cost_ns > 0)) continue;
    best = std::min(best, each.cost_ns);
    if (each.implementation == implementation && each.config == config) own = each.cost_ns;
  }
  if (!std::isfinite(own)) return std::nullopt;
  return own / best;
}

}  // namespace

std::vector<Known> known_near(store::Layers& layers, const spec::Op& op, const Problem& bucket,
                              const spec::DeviceFacts& device, Regime regime) {
  std::vector<Known> known;
  for (store::Record& record : neighbours(layers, op, bucket, device, regime, most_known)) {
    const auto own = spec::parse_bucket(op, record.bucket);
    const auto facts = spec::DeviceFacts::from_device_class(record.device_class);
    if (own && facts) known.push_back({std::move(record), *own, *facts});
  }
  return known;
}

std::optional<double> transfer_slowdown(const spec::Op& op, std::span<const Known> known, double distance) {
  std::vector<double> slowdowns;
  for (const Known& from : known) {
    for (const Known& to : known) {
      const double apart = axis_distance(op, from.bucket, to.bucket) + device_distance(from.device, to.device);
      if (&from == &to || std::abs(apart - distance) > about_as_far) continue;
      if (const auto slowdown = fared(to.record, from.record.implementation,
                                      as_searched(op, from.record.implementation, from.record.config)))
        slowdowns.push_back(*slowdown);
    }
  }
  return median(std::move(slowdowns), fewest_pairs);
}

std::optional<double> default_slowdown(const spec::Op& op, std::span<const Known> known, const Usable& standing_in) {
  std::vector<double> slowdowns;
  for (const Known& each : known) {
    if (!(each.record.baseline_ns > 0) || !(each.record.cost_ns > 0)) continue;
    const Usable baseline = default_for(op, each.bucket, each.device);
    if (baseline.implementation == standing_in.implementation && baseline.config == standing_in.config)
      slowdowns.push_back(each.record.baseline_ns / each.record.cost_ns);
  }
  return median(std::move(slowdowns), 1);
}

std::optional<double> guess_slowdown(const spec::Op& op, std::span<const Known> known, Regime regime) {
  std::vector<double> slowdowns;
  for (const Known& each : known) {
    if (each.record.candidates.empty()) continue;
    const Usable guess = guess_for(op, each.bucket, each.device, regime);
    if (guess.implementation == nullptr) continue;
    if (const auto slowdown =
            fared(each.record, guess.implementation->name, spec::to_string(*guess.implementation, guess.config)))
      slowdowns.push_back(*slowdown);
  }
  return median(std::move(slowdowns), 1);
}

}  // namespace kiln::tune
