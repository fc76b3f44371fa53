// What counts as near, fast or worth a sample to the search: its numbers in the order of use (README.md tells the
// search). A number without a unit is a time over the time that its comment names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "answer/tolerances.hpp"

namespace kiln::tune {

// Candidates (tuner.cpp, candidates.cpp).
inline constexpr std::size_t neighbours_asked = 8;       // near records that correct the model
inline constexpr std::size_t transferred_winners = 4;    // winners of near records that the first round tries
inline constexpr std::size_t most_candidates = 600;      // by the model; a racing search tries far fewer
inline constexpr std::size_t library_configs = 8;        // algorithms asked of a library at each timed size
inline constexpr std::int64_t library_sizes = 48;        // sizes at which a library is asked for its first algorithm
inline constexpr std::size_t stairs_configs = 6;         // configs at each size whose stairs are computed,
inline constexpr std::size_t stairs_configs_inside = 2;  // and midway between two sizes,
inline constexpr std::size_t few_ends = 8;               // where a bucket has at most so many
inline constexpr std::int64_t sizes_scanned = 64;        // sizes at which stairs are computed
/// At its multiples the best of cuBLASLt 13.1's library_configs proposals is 3 % slower, on the mean, than the best
/// known there. At sizes between it is 0.3 % slower (375 sizes of 15 buckets, H100).
inline constexpr std::int64_t library_exception = 16;
/// At how many timed sizes on either side of the size that it was proposed for an algorithm is worth a sample: one that
/// was the first choice, and any. Several open axes share them. By nine tunes of 13 to 21 sizes, all of 5739 points
/// timed, 59 % of these points are worth 0.01 % on the mean and 1 % at most (H200).
inline constexpr std::int64_t near_first_proposal = 4, near_proposal = 1;

// Timed sizes (candidates.cpp, timed_sizes.cpp).
using answer::finest_step, answer::most_ends;
/// How many ends an open axis gets, by the time of one launch: where launches are long, one block more changes little.
struct Ends {
  double up_to_ns;
  std::size_t even, more;  // ends that part the bucket evenly; further ends at stairs
};
inline constexpr Ends ends_by_time[] = {{1e5, 16, 8}, {3e5, 12, 6}, {1e6, 6, 6},
                                        {3e6, 3, 6},  {2e7, 2, 0},  {std::numeric_limits<double>::infinity(), 1, 0}};
using answer::worth_a_part, answer::same_stair;
static_assert(ends_by_time[0].even == most_ends(1));

// Racing (racing.cpp): over the best at the same size, expected or measured.
using answer::worth_a_sample;                         // expected: above, a newcomer is not timed there
inline constexpr double out_of_reach = 1.2;           // measured: above, a newcomer's first sample is its last
inline constexpr double worth_of_leader = 1.5;        // expected from its times elsewhere: above, a leader is not timed
inline constexpr double within_reach = 1.1;           // measured: within, a library's further algorithms are brought in
inline constexpr double serving_within = 1.05;        // measured: within, a candidate stays loaded, since it may serve
inline constexpr double improvement = 0.99;           // measured: above, the best has not improved
inline constexpr double improvement_of_few = 0.03;    // sum of logarithms over several sizes: below it,
inline constexpr double improvement_of_many = 0.008;  // or below this for each size, nothing has improved
inline constexpr double most_drift = 1.25;            // of the clock between rounds: above, a sample was disturbed
inline constexpr std::int64_t more_samples = 2;       // after a newcomer's first sample
inline constexpr std::size_t first_newcomers = 4;     // besides the baseline and Expectations::tried_first
inline constexpr std::size_t most_newcomers = 12;     // the same at several sizes: the best expected of each
// Algorithms of a library in a round: they need no compile. As many as library_budget_ns allows for a sample at each
// size, but within these.
inline constexpr std::size_t least_library_newcomers = 3, most_library_newcomers = 32;
inline constexpr double library_budget_ns = 400e6;
inline constexpr std::size_t most_pairs = 8;       // of a round
inline constexpr std::size_t most_leaders = 2;     // of a size, timed at others where they were expected behind
inline constexpr std::size_t compiles_ahead = 10;  // a compile takes longer than several rounds
inline constexpr std::int64_t rounds_a_draw = 4;   // one newcomer in so many rounds is drawn at random
static_assert(worth_a_sample <= out_of_reach, "what is worth a first sample may deserve more");
static_assert(worth_a_sample <= worth_of_leader && serving_within <= within_reach && within_reach <= out_of_reach);

// Elimination while candidates are tried (scoreboard.cpp).
inline constexpr double clearly_behind = 1.02;  // low bound over the leader's high bound: above, eliminated
inline constexpr std::size_t always_kept = 4;   // at each size, so that a disturbed sample does not decide alone
static_assert(clearly_behind < serving_within, "what may serve stays loaded after its elimination");

// Exhaustive search (exhaustive.cpp).
inline constexpr double far_out_of_reach = 4;  // first run over the leader's: above, one run is taken
inline constexpr double hopeless = 1.5;        // low bound of the first runs: above, no more are taken
inline constexpr std::int64_t first_rounds = 5, least_rounds = 9, most_rounds = 21;
inline constexpr double candidate_budget_ns = 25e6;  // for one candidate at one size
static_assert(hopeless < far_out_of_reach && first_rounds < least_rounds && least_rounds < most_rounds);

// The last comparison (last_comparison.cpp).
inline constexpr std::size_t least_for_confidence = 6;           // samples: fewer have no interval of 95 %
inline constexpr std::size_t least_a_size = 3, most_a_size = 8;  // candidates
inline constexpr std::size_t least_own = 2;                      // candidates that need no library
inline constexpr std::size_t most_points = 64;  // at all sizes together, without those that are about as fast
inline constexpr double about_as_fast = 1.04;   // over the best: within, what is compared elsewhere is compared here
inline constexpr double too_slow = 1.03;        // low bound of the ratio to the leader: above, eliminated
inline constexpr std::int64_t burst = 7, most_bursts = 5;  // rounds between two eliminations
inline constexpr double shared_budget_ns = 300e6;          // for all runs; long kernels get fewer rounds
inline constexpr double long_round_ns = 60e6;              // of a round: above, one burst is taken, of fewer candidates
static_assert(burst >= least_for_confidence && least_own <= least_a_size && least_a_size <= most_a_size);
static_assert(too_slow < about_as_fast, "what is taken in is not eliminated at once");
static_assert(about_as_fast <= serving_within, "what is taken in is still loaded");

// Ties and the configs of a record (search.cpp, portfolio.cpp, conclusion.cpp).
inline constexpr double near_tie = 1.01;        // median over the leader's
inline constexpr double much_less_bytes = 0.9;  // bytes read over another candidate's
using answer::as_good, answer::widened, answer::behind_step;
static_assert(same_stair < as_good && as_good < near_tie, "what is kept for fewer intervals ties");
static_assert(near_tie < worth_a_part, "a tie parts no interval");
static_assert(near_tie < too_slow, "the last comparison eliminates no tie");
static_assert(std::is_sorted(widened.begin(), widened.end()));

// Intervals (intervals.cpp).
inline constexpr double long_launch_ns = 3e5;                   // of a launch: above, few_probes are taken
inline constexpr std::int64_t few_probes = 3, many_probes = 7;  // samples of a candidate at one size
inline constexpr double inner_budget_ns = 400e6;  // for samples inside intervals; each may take as long as at the edge
inline constexpr std::size_t most_inner_sizes = 24;  // of a library; two thirds as many where stairs end
inline constexpr std::size_t most_expected = 2;      // candidates that the model expects to be the fastest there
inline constexpr std::int64_t least_interval = 16;   // steps of its axis in an interval that is parted
inline constexpr int switch_rounds = 6;              // comparisons that find where two candidates change places
inline constexpr std::int64_t tile_step = 8;         // rows: tiles end at its multiples
inline constexpr std::size_t most_of_an_end = 3, most_own_of_an_end = 2;  // candidates compared there
inline constexpr double in_the_running = 1.1;  // over the fastest at an end: within, compared
static_assert(few_probes < many_probes && in_the_running > worth_a_part);

// Launches (conclusion.cpp, launch_choice.cpp).
inline constexpr double longest_chained_ns = 1e5;  // launches overlap by microseconds: above, their form changes little
inline constexpr std::int64_t chain_rounds = 21, apart_rounds = 15;
static_assert(chain_rounds % 2 == 1 && apart_rounds % 2 == 1, "a median is a sample");

}  // namespace kiln::tune
