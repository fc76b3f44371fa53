#include "tune/refinement.hpp"

#include <algorithm>
#include <utility>

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
                           std::string_view record_key, std::span<const store::Record> beside) {
  Refinements all;
  for (const store::Record& record : beside) {
    if (spec::parse_runner_up_key(record.key)) continue;
    const auto at = refined_problem(op, bucket, record_key, record.key);
    Answer answer = at ? answer_of(op, *at, device, record, beside) : Answer();
    if (answer.usable.implementation != nullptr)
      all.usable.push_back({std::move(answer), at->axes[*spec::refined_axis(op)], *at, false});
    else
      ++all.unusable;
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
