// Measures regret: what serves a length in its bucket against a config tuned for that very length.
#pragma once

#include <map>
#include <vector>

#include "cli/bench/contest.hpp"
#include "cli/bench/regret.hpp"

namespace kiln::cli::bench {

class RegretMeasurement {
 public:
  /// `axis`: an index into op.axes. Buckets of the op's own policy are looked up, or tuned and published, as kiln tune would; those of
  /// other policies, and single lengths, are tuned and forgotten.
  RegretMeasurement(engine::State& state, const manifest::Op& op, std::size_t axis,
                    std::vector<manifest::BucketPolicy> policies);

  /// One for each policy at this problem's real sizes. Throws as tune::tune_bucket does.
  std::vector<Regret> at(const Problem& problem);

 private:
  /// An op with other policies, and the records of its buckets so far.
  struct Variant {
    manifest::Op op;
    std::map<std::string, store::Record> records;
  };
  struct Picked {
    Contender config;  // of `exact_`
    bool fell_back = false;
  };
  const store::Record& tuned(Variant& variant, const Problem& bucket);
  [[nodiscard]] Contender contender(std::string_view implementation, const std::string& config) const;
  Picked pick_own(const Problem& problem);
  Picked pick(Variant& variant, const Problem& problem);

  engine::State& state_;
  const manifest::Op& op_;
  std::size_t axis_;
  std::vector<manifest::BucketPolicy> policies_;
  Variant exact_;                  // every length a bucket of its own
  std::vector<Variant> variants_;  // by policy
};

}  // namespace kiln::cli::bench
