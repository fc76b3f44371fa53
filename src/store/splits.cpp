#include "store/splits.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "spec/key.hpp"

namespace kiln::store {
namespace {

/// What stands under a bucket's record. Throws as File::records_after does: a file that cannot be read is none that does not split it.
std::vector<Record> rows_under(File& file, std::string_view bucket) {
  constexpr std::int64_t at_once = 64;
  const std::string prefix = spec::prefix_under(bucket);
  std::vector<Record> rows;
  for (std::string after = prefix;;) {
    std::vector<Record> next = file.records_after(after, at_once);
    for (Record& each : next) {
      if (!each.key.starts_with(prefix)) return rows;
      after = each.key;
      each.candidates.clear();
      rows.push_back(std::move(each));
    }
    if (next.empty()) return rows;
  }
}

}  // namespace

std::optional<std::string_view> split_bucket(std::string_view key) {
  const auto refined = spec::parse_refined_key(spec::parse_runner_up_key(key).value_or(key));
  return refined ? std::optional(refined->record_key) : std::nullopt;
}

std::optional<std::int64_t> untried_up_to(std::string_view bucket, std::span<const Record> rows) {
  std::optional<std::int64_t> untried;
  bool has_part = false;
  for (const Record& row : rows) {
    if (split_bucket(row.key) != bucket) continue;
    if (!untried) untried = std::numeric_limits<std::int64_t>::max();
    const auto part = spec::parse_refined_key(row.key);
    has_part = has_part || part;
    if (part && row.samples == 0) untried = std::min(*untried, part->edge);
  }
  const bool ended = has_part && untried == std::numeric_limits<std::int64_t>::max();
  return ended ? 0 : untried;
}

bool FarthestSplits::leaves_out(std::size_t file, std::string_view key) {
  const auto bucket = split_bucket(key);
  if (!bucket) return false;
  if (left_out_.empty() || bucket_ != *bucket) {
    bucket_ = *bucket;
    std::vector<std::optional<std::int64_t>> untried;
    for (File* each : files_) untried.push_back(untried_up_to(bucket_, rows_under(*each, bucket_)));
    std::optional<std::int64_t> least;
    for (const auto& each : untried)
      if (each && (!least || *each < *least)) least = each;
    left_out_.clear();
    for (const auto& each : untried) left_out_.push_back(each && each != least);
  }
  return left_out_[file];
}

}  // namespace kiln::store
