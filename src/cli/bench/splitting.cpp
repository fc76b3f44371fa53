#include "cli/bench/splitting.hpp"

#include <utility>

#include "cli/bench/judge.hpp"
#include "kiln/error.hpp"

namespace kiln::cli::bench {

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

double Duel::gain() const {
  return rival == 0 ? 0 : tune::ratio(timed[rival].samples_ns, timed[0].samples_ns).median_ns - 1;
}

bool Duel::is_won_by(double threshold) const {
  return is_walkover || (rival != 0 && is_slower(timed[rival].samples_ns, timed[0].samples_ns, threshold));
}

Splitting split(std::span<const std::int64_t> edges, const Contender& own, double threshold,
                const std::function<Contender(std::int64_t)>& tune,
                const std::function<Duel(std::int64_t, const Contender&, const Contender&)>& duel) {
  Splitting result;
  Contender upper = own;
  for (const std::int64_t edge : edges) {
    Tried tried;
    tried.edge = edge;
    try {
      tried.tuned = tune(edge);
      if (tried.tuned != upper) tried.duel = duel(edge, tried.tuned, upper);
    } catch (const Error&) {  // of this part: those above it were measured
      result.ended_at = edge;
      result.ended_by = std::current_exception();
      return result;
    }
    tried.is_kept = tried.tuned != upper && tried.duel.is_won_by(threshold);
    if (tried.is_kept) upper = tried.tuned;
    result.tried.push_back(std::move(tried));
  }
  return result;
}

}  // namespace kiln::cli::bench
