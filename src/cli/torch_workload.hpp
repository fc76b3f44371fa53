// The problems that a model launches once kiln.torch.patch() has changed it, as the text of a workload file.
#pragma once

#include <string>

#include "cli/model_config.hpp"
#include "cli/model_workload.hpp"
#include "manifest/problem_set.hpp"

namespace kiln::cli {

/// How PyTorch runs a model.
struct TorchRun {
  manifest::SizeRange tokens{1, 16384};         // of a batch, all sequences together
  manifest::SizeRange batch{1, 32};             // sequences
  bool gradients = false;                       // also what a training step launches
  Projections projections = Projections::both;  // joined: with inference=True; separate: without
};

/// Attention is that of sequences of one length, of packed sequences, and of the next tokens of sequences with a cache.
/// The head and the embedding stay torch's. Joined projections leave out the separate ones, except those that
/// kiln.torch.patch() does not join: query, key and value of Qwen 3, gate and up with a bias. Throws Error(bad_input)
/// for a model of a family that kiln.torch.patch() does not take.
std::string torch_workload(const ModelConfig& model, const TorchRun& run);

}  // namespace kiln::cli
