// Draws streams of problems. Equal seeds give equal streams on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/problem_set.hpp"

namespace kiln::cli {

enum class Distribution { lognormal, uniform };

struct Draw {
  Distribution distribution = Distribution::lognormal;
  std::int64_t count = 1000;
  std::uint64_t seed = 1;
  std::optional<double> median;  // of lognormal sizes; else the geometric mean of the range's ends
  double sigma = 1.5;            // standard deviation of the logarithm of lognormal sizes
};

/// Returns `count` distinct problems in the order drawn. Items of a list are equally likely; sizes in a range follow
/// the distribution. Throws Error(bad_input) when the set seems to hold fewer.
std::vector<Problem> draw_problems(const manifest::Op& op, const ProblemSet& set, const Draw& draw);

}  // namespace kiln::cli
