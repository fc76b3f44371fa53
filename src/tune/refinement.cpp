#include "tune/refinement.hpp"

#include <algorithm>

namespace kiln::tune {

std::optional<Problem> refined_problem(const spec::Op& op, const Problem& bucket, std::string_view record_key,
                                       std::string_view key) {
  const auto axis = spec::refined_axis(op);
  const auto refined = spec::parse_refined_key(key);
  if (!axis || !refined || refined->record_key != record_key || refined->axis != op.axes[*axis].name)
    return std::nullopt;
  Problem at = bucket;
  at.axes[*axis] = refined->edge;
  const std::int64_t lowest = spec::low_corner(op, bucket).axes[*axis];
  const bool is_inside = refined->edge >= lowest && refined->edge < bucket.axes[*axis] && spec::is_valid(op, at);
  return is_inside ? std::optional(at) : std::nullopt;
}

Refinements refinements_of(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                           std::string_view record_key, std::vector<store::Record> records) {
  Refinements all;
  for (store::Record& record : records) {
    Refinement each;
    if (const auto at = refined_problem(op, bucket, record_key, record.key)) {
      each.at = *at;
      each.edge = at->axes[*spec::refined_axis(op)];
      each.usable = usable(op, each.at, device, record);
    }
    if (each.usable.implementation == nullptr) {
      ++all.unusable;
      continue;
    }
    each.record = std::move(record);
    all.usable.push_back(std::move(each));
  }
  std::sort(all.usable.begin(), all.usable.end(),
            [](const Refinement& a, const Refinement& b) { return a.edge < b.edge; });
  return all;
}

const Refinement* covering(const spec::Op& op, std::span<const Refinement> refinements, const Problem& problem) {
  for (const Refinement& each : refinements)
    if (problem.axes[*spec::refined_axis(op)] <= each.edge) return &each;
  return nullptr;
}

}  // namespace kiln::tune
