// A file whose report has something in every part: curves, candidates that failed, a stale record, one of an op that nobody has,
// counts of use, and a hostile text in each place that takes one.
#pragma once

#include <filesystem>
#include <string>

#include "cli/tuned_rows.hpp"

namespace kiln::testing {

inline constexpr const char* hostile =
    "</title><script>window.pwned = true</script><img src=x onerror=\"window.pwned = true\"><!--<script>\xE2\x80\xA8";

/// Of the upper edge unless `rows` says otherwise.
inline store::TriedCandidate candidate(const store::Record& record, double cost_ns, const std::string& config = {},
                                       std::int64_t rows = 0) {
  store::TriedCandidate each;
  each.implementation = record.at_edge().implementation;
  each.config = config.empty() ? record.at_edge().config : config;
  each.sizes = rows > 0 ? "rows=" + std::to_string(rows) : record.bucket.substr(0, record.bucket.find(' '));
  each.cost_ns = cost_ns;
  each.low_ns = cost_ns * 0.99;
  each.high_ns = cost_ns * 1.01;
  each.samples = 40;
  return each;
}

inline TunedRows tuned_with_candidates(std::int64_t rows, double cost_ns) {
  TunedRows tuned_rows = tuned({"rows=" + std::to_string(rows), "cols=4096", "dtype=bf16"}, h200, cost_ns);
  store::Record& record = tuned_rows.record;
  record.baseline_ns = cost_ns * 1.5;
  record.candidates = {candidate(record, cost_ns), candidate(record, cost_ns * 1.5, "threads=64"),
                       candidate(record, cost_ns * 3, "threads=32")};
  record.candidates[1].baseline = true;
  if (rows > 2) record.candidates.push_back(candidate(record, cost_ns * 0.8, {}, rows - rows / 4));
  store::TriedCandidate failed;
  failed.implementation = record.at_edge().implementation;
  failed.config = "threads=1";
  failed.sizes = record.candidates[0].sizes;
  failed.verdict = store::Verdict::wrong_result;
  failed.reason = hostile;
  record.candidates.push_back(failed);
  return tuned_rows;
}

inline store::Record hostile_record() {
  store::Record record = tuned({"rows=2", "cols=4096", "dtype=bf16"}).record;
  record.key = std::string("evil@1 | ") + hostile;
  record.op = hostile;
  record.bucket = hostile;
  record.choices[0].implementation = hostile;
  record.choices[0].config = hostile;
  record.device_class = hostile;
  record.provenance.device_name = hostile;
  record.provenance.kiln_version = hostile;
  return record;
}

inline void write_report_file(const std::filesystem::path& path) {
  const auto file = store::File::open(path, store::Access::read_write);
  double cost_ns = 5000;
  for (const std::int64_t rows : {1, 16, 256, 4096}) put(*file, tuned_with_candidates(rows, cost_ns *= 1.7));
  put(*file, tuned({"rows=64", "cols=4096", "dtype=bf16"}, h100, 9000));
  TunedRows stale = tuned({"rows=8", "cols=8192", "dtype=bf16"});
  stale.record.choices[0].source_digest = std::string(64, '0');
  put(*file, stale);
  file->put(hostile_record(), nullptr);
  file->add_to_usage(
      {{"launch", "hot", 900, 1}, {"launch", "nearest", 100, 1}, {"miss", "absent", 7, 1}, {"launch", hostile, 1, 1}});
  file->add_to_histogram({{"rms_norm", "rows=10 cols=4096 dtype=bf16", 500},
                          {"rms_norm", "rows=100000 cols=4096 dtype=bf16", 70},
                          {"rms_norm", "rows=100001 cols=4096 dtype=bf16", 7},
                          {hostile, hostile, 3}});
}

}  // namespace kiln::testing
