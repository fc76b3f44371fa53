// Reads a workload file: the problems that a deployment will launch.
//
//   [[workload]]
//   op    = "rms_norm"
//   axes  = { rows = "1..16384", cols = [4096, 8192] }   # a size, a list, or text as on the command line
//   types = { dtype = ["bf16"] }                         # types and choices; those left out take their defaults
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/catalogue.hpp"
#include "manifest/op_bucket.hpp"

namespace kiln::cli {

struct WorkloadEntry {
  std::string op;
  std::vector<std::string> words;  // "rows=1..16384", "dtype=bf16"
  std::string file;                // where it stands, for messages
  int line = 0;
};

/// Throws Error(bad_input) "NAME:LINE: ..." for text that is not a workload.
std::vector<WorkloadEntry> parse_workload(std::string_view text, const std::string& name);

using manifest::OpBucket;

/// Reads files, one after the other. Throws as parse_workload does, Error(bad_input) for a file of another sort, and
/// Error(io).
std::vector<WorkloadEntry> read_entries(std::span<const std::string> paths);

/// Return the distinct buckets in the order of the entries. `world` as in parse_problem_set. Throw Error(bad_input)
/// "NAME:LINE: ...", or Error(io).
std::vector<OpBucket> buckets_of_workload(std::span<const WorkloadEntry> entries, const manifest::Catalogue& ops,
                                          int world = 0);
std::vector<OpBucket> read_workloads(std::span<const std::string> paths, const manifest::Catalogue& ops, int world = 0);

}  // namespace kiln::cli
