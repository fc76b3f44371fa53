// Measures regret: the config of a length's bucket against one tuned for that very length.
#pragma once

#include <vector>

#include "cli/bench/regret.hpp"
#include "cli/bench/scratch_tunes.hpp"
#include "cli/session.hpp"

namespace kiln::cli::bench {

class RegretMeasurement {
 public:
  /// `axis`: an index into op.axes. Without policies the op's own counts, whose records are looked up, or tuned and published, as
  /// kiln tune would; configs for other policies, and for single lengths, are tuned and forgotten.
  RegretMeasurement(const Globals& globals, engine::State& state, const spec::Op& op, std::size_t axis,
                    std::vector<spec::BucketPolicy> policies);

  /// One for each policy at this problem's real sizes. Throws as tune::tune_bucket does.
  std::vector<Regret> at(const Problem& problem);

 private:
  [[nodiscard]] Problem edge_of(const Problem& problem, const spec::BucketPolicy& policy) const;
  Contender shared_config(const Problem& problem, const spec::BucketPolicy& policy);

  const Globals& globals_;
  engine::State& state_;
  const spec::Op& op_;
  std::size_t axis_;
  std::vector<spec::BucketPolicy> policies_;
  ScratchTunes tunes_;
};

}  // namespace kiln::cli::bench
