// Rates from an op's cost model: what it must move and compute, over the time it took.
#pragma once

#include "spec/problem.hpp"

namespace kiln::cli {

struct Rates {
  double bytes_per_second = 0, flops_per_second = 0;  // 0 where the op declares no cost
};
Rates rates_of(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, double ns);

}  // namespace kiln::cli
