#include "cli/bench/splitting.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "cli/bench/judge.hpp"
#include "kiln/error.hpp"

namespace kiln::cli::bench {
namespace {

bool is_of_library(const Contender& contender) {
  return contender.implementation != nullptr && contender.implementation->is_library();
}

const Contender& without_library(const Serving& serving) {
  return is_of_library(serving.config) ? serving.runner_up : serving.config;
}

/// The first of these that came out right.
std::optional<std::size_t> first_right(const Duel& duel, std::initializer_list<const Contender*> asked) {
  for (const Contender* each : asked) {
    const auto found = std::ranges::find(duel.contenders, *each);
    const auto at = static_cast<std::size_t>(found - duel.contenders.begin());
    if (found != duel.contenders.end() && duel.timed[at].ok()) return at;
  }
  return std::nullopt;
}

/// What serves a part that is kept.
Serving below(const Serving& upper, const Tried& kept) {
  Serving serving{kept.tuned.config, {}};
  if (is_of_library(kept.tuned.config))
    serving.runner_up = kept.duel.needs_runner_up ? kept.tuned.runner_up : without_library(upper);
  return serving;
}

bool needs_runner_up(const Duel& duel, const Serving& tuned, const Serving& upper, const Contender& standard) {
  const auto own = first_right(duel, {&tuned.runner_up});
  if (!own) return false;
  if (tuned.runner_up == without_library(upper)) return false;
  const auto other = first_right(duel, {&without_library(upper), &standard});
  if (!other || *other == *own) return true;  // the default, which is a stand-in until a record names it
  return tune::ratio(duel.timed[*other].samples_ns, duel.timed[*own].samples_ns).median_ns > 1;
}

}  // namespace

std::vector<std::int64_t> cuts_of(std::int64_t low, std::int64_t high, std::int64_t step, int splits) {
  std::vector<std::int64_t> cuts;
  const std::int64_t sizes = (high - low) / step + 1;
  for (std::int64_t part = splits; part > 0; --part) {
    const std::int64_t below = sizes * part / (splits + 1);  // sizes that are not above the cut
    const std::int64_t cut = low + (below - 1) * step;
    if (below > 0 && cut < high && (cuts.empty() || cut < cuts.back())) cuts.push_back(cut);
  }
  return cuts;
}

std::int64_t top_part_from(std::int64_t low, std::int64_t high, std::int64_t step, int splits) {
  const std::vector<std::int64_t> cuts = cuts_of(low, high, step, splits);
  return cuts.empty() ? 0 : cuts.front() + step;
}

double Duel::gain() const {
  return rival == 0 ? 0 : tune::ratio(timed[rival].samples_ns, timed[0].samples_ns).median_ns - 1;
}

bool Duel::is_won_by(double threshold) const {
  return is_walkover || (rival != 0 && is_slower(timed[rival].samples_ns, timed[0].samples_ns, threshold));
}

void find_rival(Duel& duel, const Serving& tuned, const Serving& upper, const Contender& standard) {
  const auto serving = first_right(duel, {&upper.config, &upper.runner_up, &standard});
  duel.rival = serving.value_or(0);
  const auto above = std::ranges::find(duel.contenders, upper.config);
  const bool is_wrong =
      above != duel.contenders.end() &&
      duel.timed[static_cast<std::size_t>(above - duel.contenders.begin())].verdict == store::Verdict::wrong_result;
  duel.is_walkover = !serving || is_wrong;
  duel.needs_runner_up = needs_runner_up(duel, tuned, upper, standard);
}

Splitting split(std::span<const std::int64_t> edges, const Serving& own, double threshold,
                const std::function<bool(std::int64_t, const Serving&)>& worth,
                const std::function<Serving(std::int64_t)>& tune,
                const std::function<Duel(std::int64_t, const Serving&, const Serving&)>& duel) {
  Splitting result;
  Serving upper = own;
  for (const std::int64_t edge : edges) {
    Tried tried;
    tried.edge = edge;
    try {
      if (!worth(edge, upper)) continue;
      tried.tuned = tune(edge);
      if (tried.tuned.config != upper.config) tried.duel = duel(edge, tried.tuned, upper);
    } catch (const Error&) {  // of this part: those above it were measured
      result.ended_at = edge;
      result.ended_by = std::current_exception();
      return result;
    }
    tried.is_kept = tried.tuned.config != upper.config && tried.duel.is_won_by(threshold);
    if (tried.is_kept) upper = below(upper, tried);
    result.tried.push_back(std::move(tried));
  }
  return result;
}

}  // namespace kiln::cli::bench
