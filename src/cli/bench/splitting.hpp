// Where a bucket is cut, and which of its parts get a config of their own: decided from what contests gave.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "cli/bench/contest.hpp"

namespace kiln::cli::bench {

/// The upper ends of the parts that may be split off a bucket of the sizes `low` to `high`, from above to below: it is cut at equal
/// sizes into one part more than `splits`, at multiples of `step`, of which `low` is one. Fewer where it has fewer sizes.
std::vector<std::int64_t> cuts_of(std::int64_t low, std::int64_t high, std::int64_t step, int splits);

/// The lowest size above all of these cuts; 0 where nothing is cut.
std::int64_t top_part_from(std::int64_t low, std::int64_t high, std::int64_t step, int splits);

/// What answers for a part. Contenders without an implementation stand for none.
struct Serving {
  Contender config;
  Contender runner_up;  // serves where the library that computes `config` does not; of another config there is none
  bool operator==(const Serving&) const = default;
};

/// At one size: the config that was tuned there, then what would serve otherwise, and its runner-up.
struct Duel {
  std::vector<Contender> contenders;
  std::vector<Timed> timed;
  std::size_t rival = 0;         // the contender that would serve; 0: none can, or the very config that was tuned
  bool is_walkover = false;      // nothing else can serve, or what would comes out wrong
  bool needs_runner_up = false;  // the one that was tuned is faster than what would serve without the library
  /// 0.06: the rival takes 6 % longer; 0 without one.
  [[nodiscard]] double gain() const;
  [[nodiscard]] bool is_won_by(double threshold) const;
};

/// Says who the rival is, of contenders that were timed. At each size the first of these serves that is legal and right: the config of the
/// part above, what stands behind its library, the default.
void find_rival(Duel& duel, const Serving& tuned, const Serving& upper, const Contender& standard);

struct Tried {
  std::int64_t edge = 0;
  Serving tuned;
  Duel duel;  // empty where the config that was tuned is that of the part above
  bool is_kept = false;
};

/// What came of a bucket's cuts, from above to below.
struct Splitting {
  std::vector<Tried> tried;
  std::int64_t ended_at = 0;    // the cut that failed or was interrupted, after which none was tried; 0: none was
  std::exception_ptr ended_by;  // its Error
};

/// A config is good from the size that it was tuned for down to the next: costs are stairs that rise at multiples of a tile. So at each
/// edge one is tuned. It is kept if it beats what serves the part above, `own` at first, by more than `threshold` and beyond
/// noise; else that serves this part too. `duel` is asked with the edge, what was tuned and what serves the part above. Edges that are not
/// `worth` it, of which it is asked with what would serve there, are left out.
Splitting split(std::span<const std::int64_t> edges, const Serving& own, double threshold,
                const std::function<bool(std::int64_t, const Serving&)>& worth,
                const std::function<Serving(std::int64_t)>& tune,
                const std::function<Duel(std::int64_t, const Serving&, const Serving&)>& duel);

}  // namespace kiln::cli::bench
