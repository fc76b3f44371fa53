// Streams of lengths, drawn: the same seed gives the same stream on every machine.
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
  std::optional<double> median;  // of lognormal lengths; the geometric mean of a range's ends unless given
  double sigma = 1.5;            // standard deviation of a lognormal length's logarithm
};

/// `count` distinct problems of the set, in the order drawn: a range by the distribution, between the items of a list evenly.
/// Throws Error(bad_input) when the set seems to hold fewer.
std::vector<Problem> draw_problems(const manifest::Op& op, const ProblemSet& set, const Draw& draw);

}  // namespace kiln::cli
