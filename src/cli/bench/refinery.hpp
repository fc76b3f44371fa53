// Finds and stores the sizes at which a bucket is split: below them other configs are faster than the bucket's own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/exact_tunes.hpp"
#include "cli/workload.hpp"
#include "engine/lookup.hpp"
#include "tune/tuner.hpp"

namespace kiln::cli::bench {

/// The largest multiple of `step` below `high` at which `wins` was seen to hold, bisected with at most `probes` calls; `low`, a multiple
/// at which it is known to hold, when it holds at none that was asked about.
std::int64_t last_winning(std::int64_t low, std::int64_t high, std::int64_t step, int probes,
                          const std::function<bool(std::int64_t)>& wins);

enum class Refining { split, found, whole, failed };  // found: it was split before

/// A part with a config of its own, or one that was tried for.
struct Part {
  std::int64_t low = 0, edge = 0;      // sizes on spec::refined_axis; no edge where nothing was split off
  std::string config;                  // that was the best at `low`; empty where that is the bucket's own
  double low_gain = 0, edge_gain = 0;  // 0.06: the bucket's own config takes 6 % longer there; 0 when not measured
};

struct RefinedBucket {
  OpBucket of;
  Refining refining = Refining::whole;
  std::vector<Part> parts;  // from low to high; of a bucket that is whole, the one that was tried for
  std::string why;          // it is not split
};

/// One bucket that has a record. The context must be current.
class Refinery {
 public:
  Refinery(engine::State& state, const OpBucket& bucket);
  /// A config is tuned for the lowest size. Where it beats the bucket's own there by more than `threshold` (0.03: 3 %) and beyond noise,
  /// it gets the sizes up to where it stops winning; from there on another is looked for in the same way, until the bucket's own is
  /// the best again or `most_parts` (at least 1) are split off. What was found is in the overlay. Throws as tune::tune_bucket does.
  RefinedBucket run(double threshold, int most_parts, const std::function<void(const std::string&)>& say);

 private:
  /// The lower part's config, what serves otherwise, and perhaps the default, at one size.
  struct Duel {
    std::vector<Contender> contenders;
    std::vector<Timed> timed;
    [[nodiscard]] bool is_fought() const { return timed.size() > 1 && timed[0].ok() && timed[1].ok(); }
    [[nodiscard]] double gain() const;
    [[nodiscard]] bool is_won_by(double tolerance) const;
  };
  using Say = std::function<void(const std::string&)>;
  /// Adds the part from `low` on to the result, if it is one. Whether it is.
  bool split_off(std::int64_t low, double threshold, const store::Record& of_bucket, const Say& say);
  RefinedBucket found(std::span<const tune::Refinement> stored);
  [[nodiscard]] Problem with_size(std::int64_t size) const;
  [[nodiscard]] bool is_legal(const Contender& contender, const Problem& problem) const;
  [[nodiscard]] Duel duel_at(std::int64_t size, bool with_default = false) const;
  store::Record record_of(Part& part, const store::Record& of_bucket);
  void publish(store::Found<store::Record> of_bucket);

  engine::State& state_;
  const spec::Op& op_;
  std::size_t axis_;
  const spec::DeviceFacts& facts_;
  ExactTunes tunes_;
  RefinedBucket result_;
  std::vector<tune::LowerPart> lower_parts_;
  Contender lower_, own_;
};

}  // namespace kiln::cli::bench
