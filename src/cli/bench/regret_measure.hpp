// Measures regret: times the config that serves a length in its bucket and a config tuned for that length alone.
#pragma once

#include <map>
#include <vector>

#include "cli/bench/contest.hpp"
#include "cli/bench/regret.hpp"
#include "kiln/tuner.hpp"

namespace kiln::cli::bench {

class RegretMeasurement {
 public:
  /// `axis`: an index into op.axes. Buckets of the op's own policy are looked up by the engine, or tuned and published
  /// as kiln tune does. Buckets of other policies and single lengths are tuned and not kept.
  RegretMeasurement(Tools& tools, const Engine& engine, const manifest::Op& op, std::size_t axis,
                    std::vector<manifest::BucketPolicy> policies);

  /// Returns a result for each policy at this problem's sizes. Throws as tune::tune_bucket does.
  std::vector<Regret> at(const Problem& problem);

 private:
  /// The op with another policy, and the records of its buckets so far.
  struct Variant {
    manifest::Op op;
    std::map<std::string, store::Record> records;
  };
  struct Picked {
    manifest::Variant config;  // of `exact_`
    bool fell_back = false;
  };
  const store::Record& tuned(Variant& variant, const manifest::Bucket& bucket);
  [[nodiscard]] manifest::Variant contender(std::string_view implementation, const std::string& config) const;
  Picked pick_own(const Problem& problem);
  Picked pick(Variant& variant, const Problem& problem);
  Picked pick_default(const Problem& problem);

  Tools& tools_;
  const Engine& engine_;
  Tuner tuner_;
  const manifest::Op& op_;
  std::size_t axis_;
  std::vector<manifest::BucketPolicy> policies_;
  Variant exact_;                  // policy exact
  std::vector<Variant> variants_;  // one for each policy
};

}  // namespace kiln::cli::bench
