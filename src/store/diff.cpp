#include "store/diff.hpp"

#include <cmath>

#include "store/merge_order.hpp"

namespace kiln::store {
namespace {

std::vector<EnvironmentChange> environment_changes(const Provenance& before, const Provenance& after) {
  std::vector<EnvironmentChange> changes;
  const auto compare = [&](const char* name, const std::string& a, const std::string& b) {
    if (a != b) changes.push_back({name, a, b});
  };
  compare("driver", std::to_string(before.driver_version), std::to_string(after.driver_version));
  compare("compiler", before.compiler, after.compiler);
  compare("kiln", before.kiln_version, after.kiln_version);
  compare("device", before.device_name, after.device_name);
  return changes;
}

/// The next key's record from whichever file holds it, or from both.
struct Pair {
  std::optional<Record> before, after;
};

Pair take_next(Cursor<Record>& before, Cursor<Record>& after) {
  const Record* a = before.front();
  const Record* b = after.front();
  const bool from_a = a != nullptr && (b == nullptr || a->key <= b->key);
  const bool from_b = b != nullptr && (a == nullptr || b->key <= a->key);
  Pair pair;
  if (from_a) pair.before = before.take();
  if (from_b) pair.after = after.take();
  return pair;
}

/// Counts, and the mean of what ratios multiply to.
class Summing {
 public:
  void add(const RecordChange& change) {
    switch (change.change) {
      case Change::gained: ++summary_.gained; break;
      case Change::lost: ++summary_.lost; break;
      case Change::changed: ++summary_.changed; break;
      case Change::same: ++summary_.same; break;
    }
    if (change.cost_ratio <= 0) return;
    logarithms_ += std::log(change.cost_ratio);
    ++ratios_;
  }
  [[nodiscard]] DiffSummary summary() const {
    DiffSummary summary = summary_;
    if (ratios_ > 0) summary.geometric_mean_ratio = std::exp(logarithms_ / static_cast<double>(ratios_));
    return summary;
  }

 private:
  DiffSummary summary_;
  double logarithms_ = 0;
  std::int64_t ratios_ = 0;
};

}  // namespace

std::string_view to_string(Change change) noexcept {
  switch (change) {
    case Change::gained: return "gained";
    case Change::lost: return "lost";
    case Change::changed: return "changed";
    case Change::same: return "same";
  }
  return "same";
}

RecordChange compare(const Record* before, const Record* after) {
  RecordChange result;
  result.before = before;
  result.after = after;
  if (before == nullptr || after == nullptr) {
    result.change = before == nullptr ? Change::gained : Change::lost;
    return result;
  }
  result.other_winner = before->implementation != after->implementation || before->config != after->config;
  result.intervals_overlap = before->low_ns <= after->high_ns && after->low_ns <= before->high_ns;
  if (before->cost_ns > 0 && after->cost_ns > 0) result.cost_ratio = after->cost_ns / before->cost_ns;
  result.environment = environment_changes(before->provenance, after->provenance);
  if (result.other_winner || !result.intervals_overlap) result.change = Change::changed;
  return result;
}

DiffSummary diff(File& before, File& after, const std::function<void(const RecordChange&)>& visit) {
  Cursor<Record> a(before), b(after);
  Summing sum;
  while (a.front() != nullptr || b.front() != nullptr) {
    const Pair pair = take_next(a, b);
    const RecordChange change = compare(pair.before ? &*pair.before : nullptr, pair.after ? &*pair.after : nullptr);
    sum.add(change);
    visit(change);
  }
  return sum.summary();
}

}  // namespace kiln::store
