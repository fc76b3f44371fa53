// What two files say under the same keys.
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
  changed,  // a choice serves other sizes or has another config, or a cost that the intervals tell apart
  same,
};
std::string_view to_string(Change change) noexcept;

/// A circumstance under which the two were not tuned alike.
struct EnvironmentChange {
  std::string name;  // "driver", "compiler", "kiln", "device"
  std::string before, after;
};

/// What the two have for one role and one text of sizes.
struct ChoiceChange {
  const Choice* before = nullptr;  // null when `after` alone has these sizes
  const Choice* after = nullptr;   // null when `before` alone has them
  bool other_config = false;       // of both: implementation or config
  bool intervals_overlap = false;  // of both
  [[nodiscard]] const Choice& either() const noexcept { return after != nullptr ? *after : *before; }
};

struct RecordChange {
  Change change = Change::same;
  const Record* before = nullptr;  // null when gained
  const Record* after = nullptr;   // null when lost
  std::vector<ChoiceChange>
      choices;                 // those that differ: first those of `before` in its order, then what `after` alone has
  bool other_choices = false;  // sizes, implementation or config of any
  bool intervals_overlap = false;  // of every choice whose sizes both have
  double cost_ratio = 0;  // after / before at the bucket's upper edge; 0 when one of them is absent or has no cost
  std::vector<EnvironmentChange> environment;
  [[nodiscard]] const Record& either() const noexcept { return after != nullptr ? *after : *before; }
};
/// Of one key; at most one may be null. The result points into both.
RecordChange compare(const Record* before, const Record* after);

struct DiffSummary {
  std::int64_t gained = 0, lost = 0, changed = 0, same = 0;
  double geometric_mean_ratio = 0;  // of the cost ratios; 0 when there are none
  [[nodiscard]] bool differ() const noexcept { return gained + lost + changed > 0; }
};

/// Visits every key of either file once, in order; rows that do not hold are skipped and counted by their File. The records
/// live until `visit` returns; memory stays bounded. Throws as File::records_after does.
DiffSummary diff(File& before, File& after, const std::function<void(const RecordChange&)>& visit);

}  // namespace kiln::store
