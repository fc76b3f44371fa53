#include "check/trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <set>

#include "kiln/error.hpp"
#include "manifest/limits.hpp"
#include "manifest/problem_set.hpp"

namespace kiln::check {
namespace {

using manifest::Config;
using manifest::Implementation;
using manifest::Op;
using manifest::Site;
using manifest::Variant;

constexpr std::size_t most_selections = 4096;
constexpr double most_bytes = 512.0 * (1 << 30);  // of all tensors: no device holds more
constexpr int most_guesses = 300;                 // of sizes that differ between axes, where no equal ones are legal

std::int64_t size_near(const manifest::Axis& axis, std::int64_t size) {
  if (axis.team) return std::clamp<std::int64_t>(2, axis.minimum, axis.maximum);
  return std::min(manifest::next_legal(axis, size), axis.maximum - axis.maximum % axis.multiple_of);
}

bool is_legal(const Site& site, const Variant& variant, const Problem& problem) {
  return !variant.broken_constraint(site, problem);
}

/// Whether types, choices and the device meet `requires`, whatever the sizes.
bool is_required(const Site& site, const Implementation& implementation, const Problem& problem) try {
  if (!implementation.requires_) return true;
  const std::vector<std::int64_t> frame = manifest::frame_of(site, at_size(*site.op, problem, 1));
  return implementation.requires_->evaluate(frame).truth();
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_expression) throw;
  return false;
}

/// Whether some config is legal there. A search that cannot be gone through counts as one that has a config.
bool is_served(const Site& site, const Implementation& implementation, const Problem& problem) try {
  return manifest::is_valid(*site.op, problem) && !manifest::why_not_eligible(site, implementation, problem);
} catch (const Error& error) {
  if (error.kind() == ErrorKind::bad_expression) return false;  // a default has no value, which is named elsewhere
  if (error.kind() != ErrorKind::bad_manifest) throw;
  return true;
}

/// Returns sizes of these types and choices at which some config is legal.
std::optional<Problem> served_sizes(const Site& site, const Implementation& implementation, const Problem& selections,
                                    std::span<const Problem> asked) {
  const Op& op = *site.op;
  const auto may_be_launched = [&](const Problem& problem) {
    return fits_a_device(site, problem) && is_served(site, implementation, problem);
  };
  for (const Problem& each : asked) {
    Problem problem = each;
    problem.selections = selections.selections;
    if (is_served(site, implementation, problem)) return problem;
  }
  for (const std::int64_t size : usual_sizes)
    if (const Problem problem = at_size(op, selections, size); may_be_launched(problem)) return problem;
  for (const Problem& each : guessed_sizes(site, selections, most_guesses))
    if (may_be_launched(each)) return each;
  return std::nullopt;
}

std::int64_t distance(const Config& a, const Config& b) {
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differing += a[i] == b[i] ? 0 : 1;
  return differing;
}

/// Returns the legal config nearest to the default that has this value, or nothing.
std::optional<Config> nearest_with(std::span<const Config> legal, const Config& usual, std::size_t parameter,
                                   std::int64_t value) {
  const Config* nearest = nullptr;
  for (const Config& each : legal)
    if (each[parameter] == value && (nearest == nullptr || distance(each, usual) < distance(*nearest, usual)))
      nearest = &each;
  return nearest == nullptr ? std::nullopt : std::optional(*nearest);
}

/// The default, then for each parameter a config with its least and one with its greatest value, each where legal.
std::vector<Config> corners(const Implementation& implementation, std::span<const Config> legal) {
  const Config& usual = implementation.default_config;
  std::vector<Config> chosen;
  const auto choose = [&](const Config& config) {
    if (std::find(chosen.begin(), chosen.end(), config) == chosen.end()) chosen.push_back(config);
  };
  if (std::find(legal.begin(), legal.end(), usual) != legal.end())
    choose(usual);
  else if (!legal.empty())
    choose(legal.front());
  for (std::size_t i = 0; i < implementation.parameters.size(); ++i) {
    const auto [least, greatest] = std::ranges::minmax(implementation.parameters[i].values);
    for (const std::int64_t value : {least, greatest})
      if (const auto config = nearest_with(legal, usual, i, value)) choose(*config);
  }
  return chosen;
}

/// Of `configs` those that are legal there, else one that is.
std::vector<Config> legal_of(const Site& site, const Implementation& implementation, const Problem& problem,
                             std::span<const Config> configs) {
  std::vector<Config> legal;
  std::copy_if(configs.begin(), configs.end(), std::back_inserter(legal), [&](const Config& each) {
    return is_legal(site, {&implementation, each}, problem);
  });
  if (!legal.empty()) return legal;
  return manifest::legal_configs(site, implementation, problem, 1).value_or(std::vector<Config>());
}

void add_edges(const Site& site, const Implementation& implementation, Trials& trials) {
  const Op& op = *site.op;
  const Trial base = trials.usual.front();
  // Returns whether the problem may be launched.
  const auto add = [&](const Problem& problem) {
    if (!fits_a_device(site, problem) || !is_served(site, implementation, problem)) return false;
    Trial trial{problem, legal_of(site, implementation, problem, base.configs)};
    if (!trial.configs.empty()) trials.edges.push_back(std::move(trial));
    return true;
  };
  const auto with = [](Problem problem, std::size_t axis, std::int64_t size) {
    problem.axes[axis] = size;
    return problem;
  };
  Problem least = base.problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const manifest::Axis& axis = op.axes[i];
    least.axes[i] = manifest::next_legal(axis, axis.minimum);
    add(with(base.problem, i, least.axes[i]));
    add(with(base.problem, i, base.problem.axes[i] + axis.multiple_of));
    const std::int64_t reached =
        axis.team ? std::min<std::int64_t>(axis.maximum, manifest::most_kernel_ranks) : axis.maximum;
    const std::int64_t greatest = reached - reached % axis.multiple_of;
    bool is_added = add(with(base.problem, i, greatest));
    for (const std::int64_t size : usual_sizes)
      is_added = is_added || add(with(at_size(op, base.problem, size), i, greatest));
    // What no device holds is never launched; the largest power of two that one holds may be.
    for (std::int64_t size = std::int64_t{1} << 62; !is_added && size > base.problem.axes[i]; size /= 2)
      if (const std::int64_t legal = manifest::next_legal(axis, size); size <= greatest && legal <= greatest)
        is_added = add(with(base.problem, i, legal));
  }
  add(least);
}

}  // namespace

bool fits_a_device(const Site& site, const Problem& problem) try {
  const std::vector<std::int64_t> frame = manifest::frame_of(site, problem);
  double bytes = 0;
  for (const manifest::Tensor& tensor : site.op->tensors) {
    if (!Op::takes_part(tensor, frame)) continue;
    double its = static_cast<double>(manifest::size_of(site.op->dtype_of(tensor, frame)));
    for (const manifest::Expression& each : tensor.shape) its *= static_cast<double>(each.evaluate(frame).number);
    bytes += its;
  }
  return bytes <= most_bytes;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_expression) throw;
  return false;
}

std::vector<Problem> allowed_selections(const Op& op) {
  std::vector<Problem> all;
  std::set<std::array<std::uint8_t, max_selections>> known;
  // A choice that is given, and the value that it has.
  std::vector<std::pair<std::size_t, std::uint8_t>> given;
  const auto add = [&] {
    Problem problem;
    for (std::size_t i = 0; i < op.selections.size(); ++i) {
      problem.selections[i] = op.selections[i].default_beside(problem);
      for (const auto& [selection, value] : given)
        if (selection == i) problem.selections[i] = value;
    }
    if (known.insert(problem.selections).second && manifest::is_allowed(op, problem)) all.push_back(problem);
  };
  // With none given, then with each one, each two and each three.
  const auto give = [&](const auto& self, std::size_t first, std::size_t left) -> void {
    if (left == 0) return add();
    for (std::size_t i = first; i < op.selections.size(); ++i)
      for (std::size_t value = 0; value < op.selections[i].values.size() && all.size() < most_selections; ++value) {
        given.emplace_back(i, static_cast<std::uint8_t>(value));
        self(self, i + 1, left - 1);
        given.pop_back();
      }
  };
  for (std::size_t count = 0; count <= std::min<std::size_t>(3, op.selections.size()); ++count) give(give, 0, count);
  return all;
}

std::vector<Problem> guessed_sizes(const Site& site, const Problem& selections, int count) {
  const Op& op = *site.op;
  std::mt19937 generator(1);  // the same guesses in each run
  std::vector<Problem> guesses;
  for (int guess = 0; guess < count; ++guess) {
    Problem problem = selections;
    for (std::size_t i = 0; i < op.axes.size(); ++i)
      problem.axes[i] = size_near(op.axes[i], usual_sizes[generator() % usual_sizes.size()]);
    if (fits_a_device(site, problem)) guesses.push_back(problem);
  }
  return guesses;
}

Problem at_size(const Op& op, Problem selections, std::int64_t size) {
  for (std::size_t i = 0; i < op.axes.size(); ++i) selections.axes[i] = size_near(op.axes[i], size);
  return selections;
}

Trials trials_of(const Site& site, const Implementation& implementation, std::span<const Problem> selections,
                 std::span<const Problem> asked) {
  Trials trials;
  std::set<std::pair<std::size_t, std::uint8_t>> covered;  // selection and value
  for (const Problem& each : selections) {
    bool is_new = trials.usual.empty();
    for (std::size_t i = 0; i < site.op->selections.size(); ++i)
      is_new = is_new || !covered.contains({i, each.selections[i]});
    if (!is_new || !is_required(site, implementation, each)) continue;
    trials.is_required_somewhere = true;
    const auto problem = served_sizes(site, implementation, each, asked);
    if (!problem) continue;
    for (std::size_t i = 0; i < site.op->selections.size(); ++i) covered.emplace(i, each.selections[i]);
    if (trials.usual.empty()) {
      trials.legal =
          manifest::legal_configs(site, implementation, *problem, most_legal).value_or(std::vector<Config>());
      trials.usual.push_back({*problem, corners(implementation, trials.legal)});
    } else {
      trials.usual.push_back({*problem, legal_of(site, implementation, *problem, trials.usual.front().configs)});
    }
  }
  if (!trials.usual.empty()) add_edges(site, implementation, trials);
  return trials;
}

std::vector<std::int64_t> launch_frame(const Site& site, const Variant& variant, const Problem& problem) {
  const Op& op = *site.op;
  std::vector<std::int64_t> frame = variant.frame(site, problem);
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const manifest::Runtime& runtime = op.runtime[i];
    if (!runtime.is_integer() || runtime.team_rank) continue;
    std::int64_t& slot = frame[static_cast<std::size_t>(op.first_runtime()) + i];
    if (runtime.default_integer)
      slot = runtime.default_integer->evaluate(frame).number;
    else
      slot = runtime.minimum ? std::max<std::int64_t>(runtime.minimum->evaluate(frame).number, 1) : 1;
    if (runtime.maximum) slot = std::min(slot, runtime.maximum->evaluate(frame).number);
  }
  return frame;
}

std::string text_of(const Op& op, const Problem& problem, const Variant& variant, const Target& target) {
  const std::string config = variant ? manifest::to_string(*variant.implementation, variant.config) : std::string();
  return fmt::format("{}{}{}, {}", manifest::display_text(op, problem), config.empty() ? "" : ", ", config,
                     target.arch);
}

}  // namespace kiln::check
