#include "store/diff.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "store/merge_order.hpp"

namespace kiln::store {
namespace {

/// Returns the distinct compilers of a record's choices, sorted: "cublaslt 13.0.2, nvrtc 13.0".
std::string compilers_of(const Record& record) {
  std::set<std::string_view> distinct;
  for (const Choice& choice : record.choices) distinct.insert(choice.compiler);
  std::string text;
  for (const std::string_view each : distinct) text.append(text.empty() ? "" : ", ").append(each);
  return text;
}

std::vector<EnvironmentChange> environment_changes(const Record& before, const Record& after) {
  std::vector<EnvironmentChange> changes;
  const auto compare = [&](const char* name, const std::string& a, const std::string& b) {
    if (a != b) changes.push_back({name, a, b});
  };
  const Provenance &from = before.provenance, &to = after.provenance;
  compare("driver", std::to_string(from.driver_version), std::to_string(to.driver_version));
  compare("compiler", compilers_of(before), compilers_of(after));
  compare("kiln", from.kiln_version, to.kiln_version);
  compare("device", from.device_name, to.device_name);
  return changes;
}

const Choice* find_choice(const Record& record, const Choice& like) {
  const auto found = std::ranges::find_if(
      record.choices, [&](const Choice& each) { return each.role == like.role && each.sizes == like.sizes; });
  return found == record.choices.end() ? nullptr : &*found;
}

ChoiceChange compare(const Choice& before, const Choice& after) {
  return {&before, &after, before.implementation != after.implementation || before.config != after.config,
          before.low_ns <= after.high_ns && after.low_ns <= before.high_ns};
}

void compare_choices(RecordChange& result) {
  result.intervals_overlap = true;
  for (const Choice& before : result.before->choices) {
    const Choice* after = find_choice(*result.after, before);
    const ChoiceChange change = after != nullptr ? compare(before, *after) : ChoiceChange{&before};
    result.other_choices = result.other_choices || after == nullptr || change.other_config;
    result.intervals_overlap = result.intervals_overlap && (after == nullptr || change.intervals_overlap);
    if (after == nullptr || change.other_config || !change.intervals_overlap) result.choices.push_back(change);
  }
  for (const Choice& after : result.after->choices) {
    if (find_choice(*result.before, after) != nullptr) continue;
    result.other_choices = true;
    result.choices.push_back({nullptr, &after});
  }
}

/// The records of one key; at least one file holds it.
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
  compare_choices(result);
  const double from = before->at_edge().cost_ns, to = after->at_edge().cost_ns;
  if (from > 0 && to > 0) result.cost_ratio = to / from;
  result.environment = environment_changes(*before, *after);
  if (!result.choices.empty()) result.change = Change::changed;
  return result;
}

DiffSummary diff(File& before, File& after, const std::function<void(const RecordChange&)>& visit) {
  for (File* const file : {&before, &after}) file->refuse_if_damaged("compared");
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
