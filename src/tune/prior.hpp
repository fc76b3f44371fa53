// What to expect of a config before it is tried: the model, corrected by what was measured near this bucket. Pure.
#pragma once

#include <span>
#include <vector>

#include "kiln/options.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"
#include "tune/neighbours.hpp"

namespace kiln::tune {

class Prior {
 public:
  /// `neighbours`: nearest first, as neighbours() gives them, with the candidates that there are. Those of another op, revision,
  /// regime or selection are left out. `op` must outlive this.
  Prior(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device, Regime regime,
        std::span<const store::Record> neighbours);

  /// What the model's estimate of a config is to be multiplied by: what measurements of the same and of similar configs in near buckets
  /// were to their estimates; 1 without any.
  [[nodiscard]] double correction(const manifest::Implementation& implementation,
                                  std::span<const std::int64_t> config) const;

  /// The distinct configs that serve the neighbours and are legal in this bucket, in the order of the neighbours; of one neighbour, that of
  /// the upper edge first.
  [[nodiscard]] std::vector<Winner> transferred(std::size_t at_most) const;

 private:
  /// A measured config of a neighbour: by how much, as a logarithm, it strayed from its estimate further than its bucket did.
  struct Point {
    const manifest::Implementation* implementation;
    manifest::Config config;
    double excess = 0, weight = 0;
  };
  void learn(const store::Record& record);

  const manifest::Op& op_;
  Problem bucket_;
  manifest::DeviceFacts device_;
  Regime regime_;
  std::vector<Winner> winners_;
  std::vector<Point> points_;
  double offset_sum_ = 0, offset_weight_ = 0;  // of the buckets' own straying
};

}  // namespace kiln::tune
