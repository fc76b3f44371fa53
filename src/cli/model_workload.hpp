// The problems that a model's layers launch, as the text of a workload file.
#pragma once

#include <cstdint>
#include <string>

#include "cli/model_config.hpp"
#include "manifest/problem_set.hpp"

namespace kiln::cli {

enum class Projections : std::uint8_t { both, separate, joined };

/// How a model is run.
struct ModelRun {
  manifest::SizeRange tokens{1, 16384};  // of a batch
  manifest::SizeRange batch{1, 32};      // sequences
  int ranks = 1;                         // tensor parallel
  /// separate: query, key, value, gate and up are products of their own, and swiglu an op, as in transformers. joined:
  /// one product each, with swiglu in the product. both: either.
  Projections projections = Projections::both;
};

/// Throws Error(bad_input) where the ranks do not divide heads or sizes.
std::string model_workload(const ModelConfig& model, const ModelRun& run);

}  // namespace kiln::cli
