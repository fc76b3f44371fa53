#include "answer/guess.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "answer/model.hpp"
#include "answer/serving.hpp"
#include "answer/timed_sizes.hpp"

namespace kiln::answer {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
// Share of the default's estimate: a config must be expected below it. Estimates err by more than 5 % between configs.
constexpr double worth_a_compile = 0.95;

// Chosen on 21 H100 records of gemm with their candidates, each served without the records of its n and k. Time over
// the best timed own kernel, median and 95th percentile:
//   one config for the bucket              1.10  1.32
//   one config for each of 16 sizes        1.03  1.16
//   that, with winners at 0.92             1.02  1.11
// Winners at 0.90 to 0.96 give equal figures; 8 sizes give 1.02 and 1.12.
// On 22 further records of other n and k, not used for the choice: 1.03 and 1.16, against 1.07 and 1.31 with one
// config.
constexpr std::size_t guessed_sizes = 16;
constexpr std::size_t most_guesses = 6;  // each is compiled before its first launch
constexpr double winners_share = 0.92;   // of a winner's estimate that is counted
// All configs are estimated at the upper edge; those within near_best at scanned_sizes; the best_of_each there at all
// sizes.
constexpr std::size_t scanned_sizes = 4;
constexpr double near_best = 1.35;
constexpr std::size_t best_of_each = 16;
constexpr double left_out = 1.25;  // estimate over the fastest at a size: above, a config does not serve there

struct Proposal {
  manifest::Variant of;
  bool has_won = false;
  double share = 1;  // factor on its estimates
  double at_edge_ns = never;
};

class Guesser {
 public:
  explicit Guesser(const manifest::Bucket& bucket) : bucket_(bucket) {}

  /// Returns winners, the default, then others. Of proposals that serve as many sizes the first is chosen.
  std::vector<Proposal> propose(std::span<const manifest::Variant> winners) const {
    std::vector<Proposal> proposals;
    const auto add = [&](Proposal proposal) {
      if (std::ranges::any_of(proposals, [&](const Proposal& each) { return each.of == proposal.of; })) return;
      if (proposal.at_edge_ns == never) proposal.at_edge_ns = estimated(proposal, bucket_.edge);
      proposals.push_back(std::move(proposal));
    };
    for (const manifest::Variant& each : winners)
      if (has_model(*each.implementation)) add({each, true, winners_share});
    const Usable otherwise = default_for(bucket_, bucket_.edge);
    if (otherwise && has_model(*otherwise.implementation)) add({otherwise, false, worth_a_compile});
    for (Proposal& each : promising()) add(std::move(each));
    return proposals;
  }

  std::vector<Guess> guesses(const std::vector<Proposal>& proposals) const {
    const TimedSizes sizes = even_sizes(*bucket_.op, bucket_.edge, guessed_sizes);
    std::vector<std::vector<RelativeTime>> compared;
    for (const Problem& at : sizes.problems) compared.push_back(relative_times_at(proposals, at));
    std::vector<Guess> guesses;
    for (Interval& each : intervals(*bucket_.op, bucket_.edge, sizes, choose_configs(compared, most_guesses)))
      guesses.push_back({each.region, proposals[each.candidate].of, proposals[each.candidate].has_won});
    return guesses;
  }

 private:
  /// Returns the estimate in nanoseconds, or `never` where the config is not legal.
  double estimated(const Proposal& each, const Problem& at) const {
    const double ns = estimate(bucket_, each.of, at).ns;
    const bool is_legal = std::isfinite(ns) && !each.of.broken_constraint(bucket_, at);
    return is_legal ? ns : never;
  }

  /// Returns the configs near the best at the upper edge, one of each set that the model does not tell apart.
  std::vector<Proposal> near_best_at_edge() const {
    std::vector<Proposal> all;
    double best_ns = never;
    for (const manifest::Implementation& implementation : bucket_.op->implementations) {
      if (!has_model(implementation) || manifest::why_not_eligible(bucket_, implementation, bucket_.edge)) continue;
      const std::vector<bool> is_modelled = modelled_parameters(*bucket_.op, implementation);
      std::set<manifest::Config> seen;
      for (manifest::Config& config : manifest::searched_space(bucket_, implementation, bucket_.edge)) {
        manifest::Config told_apart = config;
        for (std::size_t i = 0; i < config.size(); ++i)
          if (!is_modelled[i]) told_apart[i] = 0;
        if (!seen.insert(std::move(told_apart)).second) continue;
        manifest::Variant variant{&implementation, std::move(config)};
        const double ns = estimate(bucket_, variant, bucket_.edge).ns;
        best_ns = std::min(best_ns, ns);
        if (std::isfinite(ns) && ns <= near_best * best_ns) all.push_back({std::move(variant), false, 1, ns});
      }
    }
    std::erase_if(all, [&](const Proposal& each) { return each.at_edge_ns > near_best * best_ns; });
    return all;
  }

  /// Returns the configs that are among the best at some scanned size.
  std::vector<Proposal> promising() const {
    std::vector<Proposal> all = near_best_at_edge();
    std::vector<bool> is_kept(all.size());
    for (const Problem& at : even_sizes(*bucket_.op, bucket_.edge, scanned_sizes).problems) {
      std::vector<std::pair<double, std::size_t>> ranked;
      for (std::size_t i = 0; i < all.size(); ++i)
        ranked.emplace_back(at == bucket_.edge ? all[i].at_edge_ns : estimated(all[i], at), i);
      std::ranges::sort(ranked);
      for (std::size_t i = 0; i < std::min(ranked.size(), best_of_each); ++i) is_kept[ranked[i].second] = true;
    }
    std::vector<Proposal> kept;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is_kept[i]) kept.push_back(std::move(all[i]));
    return kept;
  }

  std::vector<RelativeTime> relative_times_at(const std::vector<Proposal>& proposals, const Problem& at) const {
    std::vector<double> ns;
    for (const Proposal& each : proposals)
      ns.push_back(each.share * (at == bucket_.edge ? each.at_edge_ns : estimated(each, at)));
    const double best = ns.empty() ? never : *std::ranges::min_element(ns);
    std::vector<RelativeTime> times;
    for (std::size_t i = 0; i < ns.size(); ++i)
      if (std::isfinite(ns[i]) && ns[i] <= left_out * best) times.push_back({i, ns[i] / best, ns[i] == best, 0});
    return times;
  }

  const manifest::Bucket& bucket_;
};

}  // namespace

bool has_model(const manifest::Implementation& implementation) noexcept {
  return !implementation.is_library() &&
         std::ranges::all_of(implementation.passes, [](const manifest::Pass& pass) { return pass.model.has_value(); });
}

Expected fastest_expected(const manifest::Site& site, const Problem& at, const Problem& problem) {
  Expected best{{}, never};
  for (const manifest::Implementation& implementation : site.op->implementations) {
    if (!has_model(implementation) || manifest::why_not_eligible(site, implementation, at)) continue;
    for (manifest::Config& config : manifest::searched_space(site, implementation, at)) {
      manifest::Variant variant{&implementation, std::move(config)};
      const double ns = estimate(site, variant, at).ns;
      if (ns < best.ns && !variant.broken_constraint(site, problem)) best = {std::move(variant), ns};
    }
  }
  return best;
}

std::vector<Guess> guesses_for(const manifest::Bucket& bucket, std::span<const manifest::Variant> winners) {
  const Guesser guesser(bucket);
  return guesser.guesses(guesser.propose(winners));
}

}  // namespace kiln::answer
