// The rows that split a bucket: its refinements and their runner-ups.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/file.hpp"

namespace kiln::store {

/// The key of the bucket that a row with this key splits. Nothing for any other row.
std::optional<std::string_view> split_bucket(std::string_view key);

/// Up to which size the split of a bucket was left untried, of the rows under its record: the least edge without samples, 0 for a split
/// that came to its end, any size where there are runner-ups alone. Nothing where it is not split.
std::optional<std::int64_t> untried_up_to(std::string_view bucket, std::span<const Record> rows);

/// Of several files that split a bucket, those that came farthest: only their parts are merged, as others' would bring back what they left
/// untried. Of splits that came equally far, parts are merged key by key.
class FarthestSplits {
 public:
  explicit FarthestSplits(std::span<File* const> files) : files_(files) {}
  /// Whether the row of files[file] is left out. Cheap while rows come by key. Throws as File::records_after does.
  bool leaves_out(std::size_t file, std::string_view key);

 private:
  std::span<File* const> files_;
  std::string bucket_;  // that left_out_ is of
  std::vector<bool> left_out_;
};

}  // namespace kiln::store
