// The problems that a model's layers launch, as the text of a workload file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/model_config.hpp"
#include "manifest/problem_set.hpp"

namespace kiln::cli {

enum class Projections : std::uint8_t { both, separate, joined };
/// packed: a prompt's keys lie beside its queries. paged: in the pages of a cache, as those of its prefix.
enum class Prompts : std::uint8_t { packed, paged };

/// How a model is run.
struct ModelRun {
  manifest::SizeRange tokens{1, 16384};  // of a batch
  manifest::SizeRange batch{1, 32};      // sequences
  int ranks = 1;                         // tensor parallel
  /// separate: query, key, value, gate and up are products of their own, and swiglu an op, as in transformers. joined:
  /// one product each, with swiglu in the product. both: either.
  Projections projections = Projections::both;
  Prompts prompts = Prompts::packed;
  /// Of the longest sequence in a cache. Without a value: 1024 up to the most tokens.
  std::optional<manifest::SizeRange> keys = std::nullopt;
  bool has_e4m3_cache = false;  // keys and values in a cache are e4m3, in place of the model's type
};

/// Throws Error(bad_input) if the ranks do not divide heads or sizes, if `run` says something of a cache and the model
/// has none, or if all its paged prompts are longer than its keys.
std::string model_workload(const ModelConfig& model, const ModelRun& run);

}  // namespace kiln::cli
