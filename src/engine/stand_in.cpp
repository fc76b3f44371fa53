#include "engine/stand_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "answer/machine_code.hpp"
#include "answer/neighbours.hpp"
#include "jit/library.hpp"
#include "kiln/error.hpp"
#include "plan/capture_launch.hpp"
#include "plan/owner.hpp"

namespace kiln::engine {
namespace {

/// Doublings, summed over the axes. At more, a config of other lengths may cost more than the compile.
constexpr double farthest_stand_in = 3;
constexpr std::size_t most_tried = 4;

struct NearPlan {
  const plan::PlanState* plan;
  double distance;
};

/// The sizes of `other` that are nearest to `bucket`.
Problem nearest_end(const manifest::Op& op, const Problem& other, const Problem& bucket) {
  const Problem low = manifest::low_corner(op, other);
  Problem nearest = other;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    nearest.axes[i] = std::clamp(bucket.axes[i], low.axes[i], other.axes[i]);
  return nearest;
}

/// The loaded kernels of near buckets of the same types, choices and exact sizes, the nearest first.
std::vector<NearPlan> near_plans(plan::OpState& op_state, const Problem& bucket) {
  const manifest::Op& op = op_state.op;
  std::vector<NearPlan> near;
  op_state.plans.for_each([&](const plan::BucketPlans& each) {
    const Problem& other = each.resolution.bucket.edge;
    if (each.stand_in || !plan::fixed_alike(op, other, bucket)) return;
    const plan::PlanState& plan = each.edge->made_at(nearest_end(op, other, bucket));
    const double distance = answer::axis_distance(op, other, bucket);
    if (distance <= farthest_stand_in && !plan.executable.is_library()) near.push_back({&plan, distance});
  });
  std::stable_sort(near.begin(), near.end(),
                   [](const NearPlan& a, const NearPlan& b) { return a.distance < b.distance; });
  if (near.size() > most_tried) near.resize(most_tried);
  return near;
}

/// `variant` for the whole bucket.
answer::Answer stand_in_of(const manifest::Bucket& bucket, manifest::Variant variant, std::string why,
                           const std::string& compiler = {}) {
  answer::Answer answer = answer::answer_without_record(Origin::nearest, std::move(variant),
                                                        manifest::whole_of(*bucket.op, bucket.edge), std::move(why));
  answer.compiler = compiler;
  return answer;
}

/// Plans of `stand_in` before the bucket's own answers, and behind those of `served` that come first: null where a file
/// lacks their machine code.
std::unique_ptr<plan::BucketPlans> plans_with(plan::OpState& op_state, const answer::Resolution& own,
                                              const answer::Answer& stand_in,
                                              const std::vector<const answer::Answer*>& served) {
  const auto is_served = [&](const answer::Answer& each) { return std::ranges::find(served, &each) != served.end(); };
  answer::Resolution resolution = own;
  resolution.answers.clear();
  for (const answer::Answer* each : served) resolution.answers.push_back(*each);
  resolution.answers.push_back(stand_in);
  for (const answer::Answer& each : own.answers)
    if (!is_served(each)) resolution.answers.push_back(each);
  auto plans = std::make_unique<plan::BucketPlans>(std::move(resolution), served.size());
  return load_stored(op_state, *plans) ? std::move(plans) : nullptr;
}

/// The same, `served` being all that sizes pick whose machine code is there, or none where it cannot be loaded.
std::unique_ptr<plan::BucketPlans> plans_with(plan::OpState& op_state, const answer::Resolution& own,
                                              const answer::Answer& stand_in) {
  std::vector<const answer::Answer*> served = own.picked_by_size();
  std::erase_if(served, [&](const answer::Answer* each) { return !op_state.plans.holds_code(own.bucket, *each); });
  if (!served.empty())
    if (auto plans = plans_with(op_state, own, stand_in, served)) return plans;
  return plans_with(op_state, own, stand_in, {});
}

/// What the heuristic of a library proposes first for the bucket's upper edge, of each implementation by a library.
/// None where the library fails: the launch then waits for a compile.
std::vector<manifest::Variant> library_proposals(const manifest::Bucket& bucket) try {
  std::vector<manifest::Variant> proposals;
  for (const manifest::Implementation& each : bucket.op->implementations) {
    if (!each.is_library() || manifest::why_not_eligible(bucket, each, bucket.edge)) continue;
    const auto frame = manifest::Variant{&each}.frame(bucket, bucket.edge);
    for (manifest::Config& config : jit::library_candidates(*bucket.op, each, frame, 1))
      proposals.push_back({&each, std::move(config)});
  }
  return proposals;
} catch (const Error&) {
  return {};
}

bool is_legal_throughout(const manifest::Variant& variant, const manifest::Bucket& bucket) {
  return !variant.broken_constraint(bucket, bucket.edge) &&
         !variant.broken_constraint(bucket, manifest::low_corner(*bucket.op, bucket.edge));
}

}  // namespace

bool load_stored(plan::OpState& op_state, plan::BucketPlans& plans) {
  try {
    op_state.plans.load(plans, plan::PlanStore::Code::stored);
    return true;
  } catch (const Error&) {  // which loading with compiles meets again
    return false;
  }
}

std::unique_ptr<plan::BucketPlans> find_stand_in(plan::OpState& op_state, const answer::Resolution& own) {
  if (!op_state.owner.cubins.can_compile()) return nullptr;
  const manifest::Bucket& bucket = own.bucket;
  const auto proposals = library_proposals(bucket);
  const auto near = near_plans(op_state, bucket.edge);
  for (const manifest::Variant& each : proposals)
    if (is_legal_throughout(each, bucket))
      if (auto plans = plans_with(
              op_state, own, stand_in_of(bucket, each, "its library proposes it, until the bucket's own is compiled")))
        return plans;
  for (const NearPlan& each : near)
    if (is_legal_throughout(each.plan->answer, bucket)) {
      std::string why = fmt::format("its machine code is loaded for {}, until that of this bucket is compiled",
                                    manifest::display_text(*bucket.op, each.plan->bucket));
      if (auto plans = plans_with(op_state, own,
                                  stand_in_of(bucket, each.plan->answer, std::move(why), each.plan->answer.compiler)))
        return plans;
    }
  return nullptr;
}

std::unique_ptr<plan::BucketPlans> with_present_code(plan::OpState& op_state, const plan::BucketPlans& stand_in) {
  answer::Resolution own = stand_in.resolution;
  const answer::Answer served_by = own.answers[*stand_in.stand_in];
  own.answers.erase(own.answers.begin() + static_cast<std::ptrdiff_t>(*stand_in.stand_in));
  return plans_with(op_state, own, served_by);
}

}  // namespace kiln::engine
