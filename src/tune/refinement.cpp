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

namespace {

/// An edge's record, or its runner-up where that alone can serve.
Refinement refinement_of(const spec::Op& op, const Problem& at, const spec::DeviceFacts& device,
                         const store::Record& record, std::span<const store::Record> beside) {
  Refinement refinement;
  refinement.at = at;
  refinement.edge = at.axes[*spec::refined_axis(op)];
  refinement.record = record;
  refinement.usable = usable(op, at, device, record);
  const bool usable_itself = refinement.usable.implementation != nullptr;
  if (usable_itself && !refinement.usable.implementation->is_library()) return refinement;
  refinement.runner_up = runner_up_of(op, at, device, record.key, beside);
  if (usable_itself || !refinement.runner_up) return refinement;
  refinement.passed_over = std::exchange(refinement.record, std::move(refinement.runner_up->record));
  refinement.usable = std::move(refinement.runner_up->usable);
  refinement.runner_up.reset();
  return refinement;
}

}  // namespace

Refinements refinements_of(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                           std::string_view record_key, std::span<const store::Record> beside) {
  Refinements all;
  for (const store::Record& record : beside) {
    if (spec::parse_runner_up_key(record.key)) continue;
    const auto at = refined_problem(op, bucket, record_key, record.key);
    Refinement each = at ? refinement_of(op, *at, device, record, beside) : Refinement();
    if (each.usable.implementation != nullptr)
      all.usable.push_back(std::move(each));
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
