// The differences between the records of two files, key by key.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "store/file.hpp"

namespace kiln::store {

enum class Change : std::uint8_t {
  gained,   // only in the second file
  lost,     // only in the first
  changed,  // a choice differs in sizes or config, or its cost intervals do not overlap
  same,
};
std::string_view to_string(Change change) noexcept;

/// A part of the environment that differed when the two records were tuned.
struct EnvironmentChange {
  std::string name;  // "driver", "compiler", "kiln", "device"
  std::string before, after;
};

/// The choices of both records for one role and one text of sizes.
struct ChoiceChange {
  const Choice* before = nullptr;  // null when `after` alone has these sizes
  const Choice* after = nullptr;   // null when `before` alone has them
  bool other_config = false;       // implementation or config differ; false when one is null
  bool intervals_overlap = false;  // false when one is null
  [[nodiscard]] const Choice& either() const noexcept { return after != nullptr ? *after : *before; }
};

struct RecordChange {
  Change change = Change::same;
  const Record* before = nullptr;  // null when gained
  const Record* after = nullptr;   // null when lost
  /// The choices that differ: those of `before` in its order, then those that `after` alone has.
  std::vector<ChoiceChange> choices;
  bool other_choices = false;      // some choice differs in sizes, implementation or config
  bool intervals_overlap = false;  // for all choices whose sizes both records have
  double cost_ratio = 0;           // after / before at the bucket's upper edge; 0 when either is absent or has no cost
  std::vector<EnvironmentChange> environment;
  [[nodiscard]] const Record& either() const noexcept { return after != nullptr ? *after : *before; }
};
/// Compares the records of one key, of which at most one may be null. The result points into both.
RecordChange compare(const Record* before, const Record* after);

struct DiffSummary {
  std::int64_t gained = 0, lost = 0, changed = 0, same = 0;
  double geometric_mean_ratio = 0;  // of the cost ratios; 0 when there are none
  [[nodiscard]] bool differ() const noexcept { return gained + lost + changed > 0; }
};

/// Calls `visit` once for each key of either file, in order. Skips rows whose digest fails; their File counts them. The
/// records live until `visit` returns, so memory is bounded. Throws as File::records_after does.
DiffSummary diff(File& before, File& after, const std::function<void(const RecordChange&)>& visit);

}  // namespace kiln::store
