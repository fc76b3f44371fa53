#include "plan/bucket_plans.hpp"

#include <algorithm>
#include <utility>

namespace kiln::plan {

bool is_same(const answer::Answer& a, const answer::Answer& b) {
  return static_cast<const manifest::Variant&>(a) == b && a.origin == b.origin && a.at == b.at;
}

BucketPlans::BucketPlans(answer::Resolution resolved, std::optional<std::size_t> stands_in)
    : resolution(std::move(resolved)), stand_in(stands_in) {
  for (const answer::Answer& answer : resolution.answers) {
    const auto shared =
        std::ranges::find_if(slots, [&](const PlanSlot& slot) { return is_same(*slot.answer, answer); });
    PlanSlot& slot = shared != slots.end() ? *shared : slots.emplace_back(answer);
    // A shared slot reports the time at the sizes that its plan is made for.
    if (slot.answer->region.high != answer.at && answer.region.high == answer.at) slot.answer = &answer;
    slots_of_answers.push_back(&slot);
  }
}

std::vector<PlanSlot*> BucketPlans::slots_for(const Problem& problem, const PlanState* refused) {
  const manifest::Op& op = *resolution.bucket.op;
  std::vector<PlanSlot*> found;
  for (std::size_t i = 0; i < slots_of_answers.size(); ++i)
    if (resolution.answers[i].region.contains(op, problem) && std::ranges::find(found, &slot(i)) == found.end())
      found.push_back(&slot(i));
  const auto last =
      std::ranges::find_if(found, [&](const PlanSlot* each) { return refused != nullptr && each->made() == refused; });
  if (last != found.end()) found.erase(found.begin(), last + 1);
  return found;
}

bool BucketPlans::is_settled_for(const Problem& problem) {
  for (const PlanSlot* slot : slots_for(problem)) {
    if (!slot->settled.load(std::memory_order_acquire)) return false;
    if (slot->plan != nullptr) return true;
  }
  return true;
}

answer::Resolution::First BucketPlans::first(const Problem& problem, bool own_only, std::size_t from) const {
  return resolution.first(problem, [&](std::size_t index) {
    const PlanSlot& its = slot(index);
    const bool cannot_be_made = its.settled.load(std::memory_order_acquire) && its.plan == nullptr;
    return index >= from && !cannot_be_made && !(own_only && answers()[index].implementation->is_library());
  });
}

std::vector<const PlanState*> BucketPlans::made() const {
  std::vector<const PlanState*> plans;
  for (const PlanSlot& each : slots)
    if (const PlanState* plan = each.made()) plans.push_back(plan);
  return plans;
}

WorkspaceNeeds BucketPlans::needs() const {
  WorkspaceNeeds needs;
  for (const PlanState* plan : made()) {
    needs.scratch = std::max(needs.scratch, plan->needs.scratch);
    needs.zeroed = std::max(needs.zeroed, plan->needs.zeroed);
  }
  return needs;
}

}  // namespace kiln::plan
