// The files that cold starts are made from, written ahead.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kiln::bench {

/// Tunes the one bucket that the children launch and exports it, sealed, as `folder`/shipped.kiln.
std::filesystem::path make_shipped(const std::filesystem::path& folder);

struct PlanProblem {
  const char* op;
  std::int64_t rows, cols;
  const char* dtype;
};
/// Distinct buckets of rms_norm and softmax: row counts from 1 to 16384 by as many widths as it takes.
std::vector<PlanProblem> plan_problems(std::size_t count);
/// A sealed file with a record for each of them and its machine code. Configs are drawn from all over each search space, so that they need
/// many specialisations. Returns how many.
std::size_t make_plans(const std::filesystem::path& file, std::size_t count);

}  // namespace kiln::bench
