// Splits a bucket into parts of which each has the config that was tuned at its upper end, and stores them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/scratch_tunes.hpp"
#include "cli/bench/splitting.hpp"
#include "cli/workload.hpp"
#include "engine/lookup.hpp"
#include "tune/tuner.hpp"

namespace kiln::cli::bench {

/// found: it was split before; partly: its upper parts are, what is below them serves as before.
enum class Refining { split, partly, found, whole, failed };

/// A part with a config of its own.
struct Part {
  std::int64_t low = 0, edge = 0;  // sizes on spec::refined_axis
  std::string config;
  std::optional<double>
      gain;  // 0.06: at the edge, what serves the part above takes 6 % longer; nothing when not measured now
};

struct RefinedBucket {
  OpBucket of;
  Refining refining = Refining::whole;
  std::vector<Part> parts;  // from low to high
  std::string why;          // it is not split, or only partly
};

/// As kiln tune --refine has it unless told otherwise.
struct RefineChoice {
  double threshold = 0.03;  // how much faster a part's config must be than that of the part above
  int most_parts = 3;       // that are split off a bucket whatever the model expects, at least 1
  std::int64_t lowest = 0;  // size that is of interest: no part that ends below it is sought
};

/// Of a bucket that will be cut at `splits` sizes (RefineChoice::most_parts) and has no record yet: the tune::TuneRequest::lowest of its
/// own config, which is certain to serve the uppermost of these parts alone. The op must have a spec::refined_axis.
std::int64_t top_part_from(const spec::Op& op, const Problem& bucket, int splits);

/// One bucket that has a record. The context must be current.
class Refinery {
 public:
  Refinery(engine::State& state, const OpBucket& bucket, const RefineChoice& choice);
  /// Tries to split the bucket at each of cuts_of(), and at those of eight times as many parts where the model expects the config of
  /// the part above to be slower than another by more than the threshold. What was found is in the overlay, as far as it came: where a
  /// part fails or is interrupted, those above it are kept, and the next run goes on there. Throws as tune::tune_bucket does where
  /// nothing was tried.
  RefinedBucket run(const std::function<void(const std::string&)>& say);

 private:
  /// Takes up the parts that an earlier run kept above what it left untried.
  void resume(const engine::Lookup& lookup, std::span<const store::Record> beside, std::int64_t untried);
  Splitting try_cuts(std::span<const std::int64_t> cuts, const std::function<void(const std::string&)>& say);
  /// The parts that are kept, as records and in the result.
  std::vector<tune::LowerPart> take(const Splitting& splitting, const engine::Lookup& lookup);
  RefinedBucket found(std::span<const tune::Refinement> stored);
  [[nodiscard]] std::string why_whole(const Splitting& splitting) const;
  [[nodiscard]] Problem with_size(std::int64_t size) const;
  [[nodiscard]] bool is_legal(const Contender& contender, const Problem& problem) const;
  [[nodiscard]] double expected_gain(std::int64_t size, const Contender& serving) const;
  [[nodiscard]] Serving serving_of(const engine::Lookup& part) const;
  [[nodiscard]] Contender default_at(const Problem& problem) const;
  [[nodiscard]] Duel duel_at(std::int64_t size, const Serving& tuned, const Serving& upper) const;
  [[nodiscard]] store::Record record_at(std::int64_t edge, const Contender& serving,
                                        const store::Record& of_bucket) const;
  store::Record record_of(const Tried& tried, const store::Record& of_bucket);
  std::optional<store::Record> runner_up_of(const Tried& tried, const store::Record& of_bucket);
  [[nodiscard]] std::optional<tune::LowerPart> untried(std::int64_t edge, const engine::Lookup& lookup) const;

  engine::State& state_;
  RefineChoice choice_;
  ScratchTunes tunes_;
  const spec::Op& op_;
  const spec::Axis& axis_;
  std::size_t axis_index_;
  const spec::DeviceFacts& facts_;
  std::int64_t low_;
  RefinedBucket result_;
  Serving own_;                        // the bucket's
  Serving upper_;                      // what serves above the first cut that is tried
  std::vector<tune::LowerPart> kept_;  // of an earlier run, from above to below
  bool resumed_ = false;
};

}  // namespace kiln::cli::bench
