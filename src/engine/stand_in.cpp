#include "engine/stand_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

/// Whether a plan of the bucket has a config of its own, which a stand-in has where compile_stand_in() chose it.
bool is_own(const plan::BucketPlans& of, const plan::PlanState& plan) {
  const manifest::Variant& config = plan.answer;
  for (std::size_t i = 0; i < of.answers().size(); ++i)
    if (i != of.stand_in && config == of.answers()[i]) return true;
  return false;
}

/// The loaded kernels of near buckets of the same types and choices, and of the same exact sizes or of others, the
/// nearest first.
std::vector<NearPlan> near_plans(plan::OpState& op_state, const Problem& bucket, bool of_same_sizes) {
  const manifest::Op& op = op_state.op;
  std::vector<NearPlan> near;
  op_state.plans.for_each([&](const plan::BucketPlans& each) {
    const Problem& other = each.resolution.bucket.edge;
    if (other.selections != bucket.selections) return;
    if (plan::fixed_alike(op, other, bucket) != of_same_sizes) return;
    const plan::PlanState& plan = each.edge->made_at(nearest_end(op, other, bucket));
    if (!is_own(each, plan)) return;
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

/// The bucket's own answers, `served` first and then `stand_in`.
answer::Resolution in_order(const answer::Resolution& own, const std::vector<const answer::Answer*>& served,
                            const answer::Answer& stand_in) {
  answer::Resolution ordered = own;
  ordered.answers.clear();
  for (const answer::Answer* each : served) ordered.answers.push_back(*each);
  ordered.answers.push_back(stand_in);
  for (const answer::Answer& each : own.answers)
    if (std::ranges::find(served, &each) == served.end()) ordered.answers.push_back(each);
  return ordered;
}

bool loads(plan::OpState& op_state, plan::BucketPlans& plans, std::size_t answer) {
  try {
    op_state.plans.make(plans.slot(answer), plans, plan::PlanStore::Code::stored);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Plans of the own answers that sizes pick and whose machine code loads from files, and of `stand_in` for all other
/// sizes. Null where a file lacks machine code of the stand-in. Given `present`, also where no more own answers serve
/// than that many, or where one of the first so many does not.
std::unique_ptr<plan::BucketPlans> plans_with(plan::OpState& op_state, const answer::Resolution& own,
                                              const answer::Answer& stand_in, std::optional<std::size_t> present = {}) {
  std::vector<const answer::Answer*> served = own.picked_by_size();
  std::erase_if(served, [&](const answer::Answer* each) { return !op_state.plans.holds_code(own.bucket, *each); });
  const auto is_more = [&] {
    for (std::size_t i = 0; i < *present; ++i)
      if (std::ranges::find(served, &own.answers[i]) == served.end()) return false;
    return served.size() > *present;
  };
  while (!present || is_more()) {
    auto plans = std::make_unique<plan::BucketPlans>(in_order(own, served, stand_in), served.size());
    std::size_t loaded = 0;
    while (loaded < served.size() && loads(op_state, *plans, loaded)) ++loaded;
    if (loaded == served.size()) return load_stored(op_state, *plans) ? std::move(plans) : nullptr;
    served.erase(served.begin() + static_cast<std::ptrdiff_t>(loaded));
  }
  return nullptr;
}

bool is_legal_throughout(const manifest::Variant& variant, const manifest::Bucket& bucket) {
  return !variant.broken_constraint(bucket, bucket.edge) &&
         !variant.broken_constraint(bucket, manifest::low_corner(*bucket.op, bucket.edge));
}

/// Plans with the config of a near bucket as stand-in. Of other exact sizes, only where the machine code is the same.
std::unique_ptr<plan::BucketPlans> find_near(plan::OpState& op_state, const answer::Resolution& own,
                                             bool of_same_sizes) {
  const manifest::Bucket& bucket = own.bucket;
  for (const NearPlan& each : near_plans(op_state, bucket.edge, of_same_sizes)) {
    if (!is_legal_throughout(each.plan->answer, bucket)) continue;
    std::string why = fmt::format("its machine code is loaded for {}, until that of this bucket is compiled",
                                  manifest::display_text(*bucket.op, each.plan->bucket));
    const answer::Answer stand_in = stand_in_of(bucket, each.plan->answer, std::move(why), each.plan->answer.compiler);
    if (!of_same_sizes && !op_state.plans.holds_code(bucket, stand_in)) continue;
    if (auto plans = plans_with(op_state, own, stand_in)) return plans;
  }
  return nullptr;
}

/// Plans with the first of the bucket's own answers as stand-in whose machine code is there.
std::unique_ptr<plan::BucketPlans> find_own(plan::OpState& op_state, const answer::Resolution& own) {
  for (const answer::Answer& each : own.answers)
    if (!each.implementation->is_library() && is_legal_throughout(each, own.bucket) &&
        op_state.plans.holds_code(own.bucket, each)) {
      answer::Answer stand_in = stand_in_of(
          own.bucket, each, "its machine code is there, until that of other sizes is compiled", each.compiler);
      if (each.origin == Origin::default_) stand_in.origin = each.origin;
      if (auto plans = plans_with(op_state, own, stand_in)) return plans;
    }
  return nullptr;
}

/// What the heuristic of a library proposes first for the bucket's upper edge, of each implementation by a library.
/// None where the library fails.
std::vector<manifest::Variant> library_proposals(const manifest::Bucket& bucket) try {
  std::vector<manifest::Variant> proposals;
  for (const manifest::Implementation& each : bucket.op->implementations) {
    if (!each.is_library() || manifest::why_not_eligible(bucket, each, bucket.edge)) continue;
    const auto frame = manifest::Variant{&each}.frame(bucket, bucket.edge);
    for (manifest::Config& config : jit::library_candidates(*bucket.op, each, frame, 1))
      proposals.push_back({&each, std::move(config)});
  }
  return proposals;
} catch (const std::exception&) {
  return {};
}

}  // namespace

bool load_stored(plan::OpState& op_state, plan::BucketPlans& plans) {
  try {
    op_state.plans.load(plans, plan::PlanStore::Code::stored);
    return true;
  } catch (const std::exception&) {  // which loading with compiles meets again
    return false;
  }
}

std::unique_ptr<plan::BucketPlans> find_stand_in(plan::OpState& op_state, const answer::Resolution& own) {
  if (!op_state.owner.cubins.can_compile()) return nullptr;
  const manifest::Bucket& bucket = own.bucket;
  for (const manifest::Variant& each : library_proposals(bucket))
    if (is_legal_throughout(each, bucket))
      if (auto plans = plans_with(
              op_state, own, stand_in_of(bucket, each, "its library proposes it, until the bucket's own is compiled")))
        return plans;
  if (auto plans = find_near(op_state, own, true)) return plans;
  if (auto plans = find_own(op_state, own)) return plans;
  return find_near(op_state, own, false);
}

std::unique_ptr<plan::BucketPlans> compile_stand_in(plan::OpState& op_state, plan::BucketPlans& own,
                                                    const Problem& problem) {
  const answer::Resolution& of = own.resolution;
  const answer::Resolution::First first = own.first(problem);
  if (first.serves == nullptr || first.serves->implementation->is_library() ||
      !is_legal_throughout(*first.serves, of.bucket))
    return nullptr;
  const auto picked = of.picked_by_size();
  const auto is_another = [&](const answer::Answer* each) {
    return !plan::is_same(*each, *first.serves) && !op_state.plans.holds_code(of.bucket, *each);
  };
  if (std::ranges::none_of(picked, is_another)) return nullptr;
  try {
    op_state.plans.compile_first(*first.serves, own);
  } catch (const std::exception&) {  // which loading all sizes meets again
    return nullptr;
  }
  return find_own(op_state, of);
}

bool library_computes(const manifest::Bucket& bucket) {
  return std::ranges::any_of(bucket.op->implementations, [&](const manifest::Implementation& each) {
    return each.is_library() && !manifest::why_not_eligible(bucket, each, bucket.edge) &&
           !jit::library_identity(each.library).empty();
  });
}

const answer::Answer* default_to_stand_in(const answer::Resolution& own) {
  const auto serves = [&](const answer::Answer& each) {
    return each.origin == Origin::default_ && !each.implementation->is_library() &&
           is_legal_throughout(each, own.bucket);
  };
  const auto found = std::ranges::find_if(own.answers, serves);
  return found == own.answers.end() ? nullptr : &*found;
}

std::unique_ptr<plan::BucketPlans> with_more_code(plan::OpState& op_state, const plan::BucketPlans& serving) {
  answer::Resolution own = serving.resolution;
  const std::size_t served = *serving.stand_in;
  const answer::Answer stand_in = own.answers[served];
  own.answers.erase(own.answers.begin() + static_cast<std::ptrdiff_t>(served));
  return plans_with(op_state, own, stand_in, served);
}

}  // namespace kiln::engine
