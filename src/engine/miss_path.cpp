#include "engine/miss_path.hpp"
#include "engine/ahead.hpp"
#include "engine/background.hpp"
#include "engine/shared_answers.hpp"

#include <fmt/format.h>

#include <chrono>

#include "answer/explain.hpp"
#include "answer/machine_code.hpp"
#include "cuda/stream_owner.hpp"
#include "engine/stand_in.hpp"
#include "engine/state.hpp"
#include "engine/team/agree.hpp"
#include "engine/tune_once.hpp"
#include "kiln/error.hpp"
#include "plan/capture_launch.hpp"
#include "plan/hit_path.hpp"

namespace kiln::engine {
namespace {

constexpr auto lease_patience = std::chrono::minutes(5);

/// Whether `stream` itself captures. Making ready enqueues nothing on the legacy stream, so a capture ordered with it
/// does not count.
bool is_captured(CUstream stream) { return cuda::capture_state(stream) == cuda::CaptureState::capturing; }

/// Begins what launches need besides plans.
void begin_serving(plan::OpState& op_state) {
  if (op_state.owner.histogram) op_state.owner.histogram->start();
  if (op_state.reports) op_state.owner.length_reports.open();
}

/// Loads the first answer that serves the problem. Behind a library loads the next one that needs none, for launches
/// that the library declines and for lengths on the device.
void make_serving(plan::OpState& op_state, plan::BucketPlans& of, const Problem& problem, CUstream stream) {
  const bool is_capturing = is_captured(stream);
  bool is_behind_library = false;
  std::size_t answer = of.first(problem).index;
  for (; answer < of.answers().size(); answer = of.first(problem, is_behind_library, answer + 1).index) {
    plan::PlanSlot& slot = of.slot(answer);
    const plan::PlanState* plan = nullptr;
    try {
      plan = is_capturing ? slot.made() : op_state.plans.make(slot, of, plan::PlanStore::Code::any);
    } catch (const Error&) {
      if (!is_behind_library) throw;
      return;
    }
    if (plan == nullptr) continue;
    if (!plan->executable.is_library()) return;
    is_behind_library = true;
  }
}

/// The plans of a bucket that this launch could not tune; warns why.
std::unique_ptr<plan::BucketPlans> fallback_plans(plan::OpState& op_state, const manifest::Bucket& bucket,
                                                  std::string_view why) {
  op_state.owner.warn(fmt::format("{} is served by a fallback: {}", bucket.text(), why), op_state.op.name,
                      manifest::to_string(op_state.op, bucket.edge));
  answer::Resolution fallback = op_state.resolve(bucket.edge, true);
  answer::leave_servable(fallback, op_state.owner.arch(), op_state.owner.cubins);
  return op_state.plans.load(std::move(fallback));
}

/// The launch itself may fit where its tune, which has tensors of its own, finds too little device memory.
std::unique_ptr<plan::BucketPlans> tuned_plans(plan::OpState& op_state, const answer::Resolution& missed) {
  TuneOutcome outcome;
  try {
    outcome = tune_once(engine_of(op_state), op_state.op, missed.bucket.edge, {.patience = lease_patience});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    return fallback_plans(
        op_state, missed.bucket,
        fmt::format("{}. A Tuner of this engine tunes it once there is room, kiln prewarm before the service starts",
                    error.what()));
  }
  if (outcome.end != TuneOutcome::End::held_elsewhere) return op_state.plans.load(std::move(outcome.resolution));
  return fallback_plans(op_state, missed.bucket,
                        fmt::format("for {} minutes {} has been tuning it", lease_patience.count(),
                                    outcome.holder.empty() ? "another process" : outcome.holder));
}

/// Loads the plan of the problem's sizes, where files have the machine code of all sizes in its bucket. Returns whether
/// it did.
bool load_stored_for(plan::OpState& op_state, plan::BucketPlans& plans, const Problem& problem) {
  if (!op_state.plans.holds_code(plans.resolution)) return false;
  try {
    op_state.plans.load_for(plans, problem);
    return true;
  } catch (const std::exception&) {  // which loading all sizes meets again
    return false;
  }
}

/// The plans of fallbacks, or of a record's answers. Where files lack machine code of them, either a stand-in or a
/// wait. Under a policy without fallbacks all sizes are loaded, so that a capture of any of them finds its plan.
std::unique_ptr<plan::BucketPlans> load_or_stand_in(plan::OpState& op_state, answer::Resolution resolution,
                                                    const Problem& problem, bool may_stand_in) {
  auto own = std::make_unique<plan::BucketPlans>(std::move(resolution));  // of all tries, which count once
  if (may_stand_in && op_state.takes_fallbacks()) {
    if (load_stored_for(op_state, *own, problem)) return own;
    if (engine_of(op_state).ahead) {
      if (load_stored(op_state, *own)) return own;
      if (auto stand_in = find_stand_in(op_state, own->resolution)) {
        if (stand_in->resolution.is_hit() && !own->meets_refused && !stand_in->meets_refused)
          op_state.owner.counters.count(answer::Miss::no_cubin);
        return stand_in;
      }
      if (auto stand_in = compile_stand_in(op_state, *own, problem)) return stand_in;
    }
  }
  op_state.plans.load(*own);
  return own;
}

std::unique_ptr<plan::BucketPlans> build_alone(plan::OpState& op_state, const Problem& problem, bool may_stand_in) {
  answer::Resolution resolution = op_state.resolve(problem, op_state.takes_fallbacks());
  if (resolution.miss) op_state.owner.counters.count(*resolution.miss);
  // A tune asks the shared store itself. Launches that fallbacks serve do not wait for it.
  if (SharedAnswers* const shared = engine_of(op_state).shared.get();
      shared != nullptr && !resolution.is_hit() && op_state.owner.options.on_miss != MissPolicy::tune &&
      !(op_state.takes_fallbacks() && may_stand_in) && shared->bring(resolution.bucket))
    resolution = op_state.resolve(problem, op_state.takes_fallbacks());
  if (resolution.is_hit()) return load_or_stand_in(op_state, std::move(resolution), problem, may_stand_in);
  switch (op_state.owner.options.on_miss) {
    case MissPolicy::tune: return tuned_plans(op_state, resolution);
    case MissPolicy::background:
    case MissPolicy::nearest:
      answer::leave_servable(resolution, op_state.owner.arch(), op_state.owner.cubins);
      return load_or_stand_in(op_state, std::move(resolution), problem, may_stand_in);
    case MissPolicy::error: break;
  }
  throw Error(
      ErrorKind::not_tuned,
      fmt::format(
          "no record for {}{}; tune it (kiln tune {} ...), add the base file that holds it, or choose another miss policy",
          resolution.key, resolution.unusable.empty() ? "" : " that can serve: " + resolution.unusable,
          op_state.op.name));
}

std::unique_ptr<plan::BucketPlans> build(plan::OpState& op_state, const Problem& problem, bool may_stand_in) {
  if (op_state.op.is_of_team()) return build_with_team(op_state, problem);
  try {
    return build_alone(op_state, problem, may_stand_in);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_nvrtc) throw;
    const manifest::Bucket bucket = op_state.site().bucket_of(problem);
    op_state.owner.layers.write_queued();
    throw Error(ErrorKind::no_nvrtc, fmt::format("{} needs a compile. Of its record: {}. {}", bucket.text(),
                                                 answer::text_of_files(bucket, op_state.owner.layers), error.what()));
  }
}

void tell_fallback(const plan::OpState& op_state, const plan::BucketPlans& made, const Problem& problem) {
  const answer::Answer* const serves = made.first(problem).serves;
  if (serves == nullptr || !is_fallback(serves->origin)) return;
  op_state.owner.tell(LogEvent::Kind::fallback, op_state.op.name,
                      manifest::to_string(op_state.op, made.resolution.bucket.edge),
                      fmt::format("{} serves, from {}: {}", serves->name(), to_string(serves->origin), serves->why));
}

/// adopt() of the answers that the bucket has by now.
void adopt_present(plan::OpState& op_state, const Problem& bucket, InPlaceOf present) {
  answer::Resolution own = op_state.resolve(bucket, op_state.takes_fallbacks());
  answer::leave_servable(own, op_state.owner.arch(), op_state.owner.cubins);
  adopt(op_state, std::move(own), present);
}

/// Has the background do what a bucket needs beside its launches: its own machine code, its tune, the shared store's
/// record. After its publication, so that its launches are counted.
void follow_up(plan::OpState& op_state, const plan::PlanState& plan) {
  EngineState& engine = engine_of(op_state);
  const Problem& bucket = plan.bucket;
  if (engine.ahead) plan.of.stand_in ? engine.ahead->want_swap(op_state, bucket) : engine.ahead->met(op_state, bucket);
  const bool has_record = plan.of.stand_in && plan.of.resolution.is_hit();
  if (is_fallback(plan.origin) && !has_record && !op_state.op.is_of_team()) {
    if (engine.background) engine.background->want(op_state, bucket, &plan);
    if (engine.shared && op_state.takes_fallbacks() && !(engine.background && engine.background->can_tune()))
      engine.shared->bring_when_there({op_state.site(), bucket},
                                      [&op_state, bucket] { adopt_present(op_state, bucket, InPlaceOf::anything); });
  }
  plan.of.is_followed = true;
}

}  // namespace

Origin EngineState::launch_cold(plan::OpState& op_state, const plan::Call& call) {
  manifest::check_own(op_state.op, call.problem);
  manifest::check_own(op_state.op, call.arguments);
  manifest::check_allowed(op_state.op, call.problem);
  if (!plan::captures(op_state, call.stream) || op_state.op.is_of_team())
    return plan::launch_plan(op_state, *make_hot(op_state, call.problem, call.stream, true), call.problem,
                             call.arguments, call.stream);
  if (background) background->want(op_state, manifest::bucket_of(op_state.op, call.problem), nullptr);
  return plan::launch_in_capture(op_state, call, "no plan of its bucket is ready");
}

const plan::PlanState* make_hot(plan::OpState& op_state, const Problem& problem, CUstream stream, bool may_stand_in) {
  const Problem bucket = manifest::bucket_of(op_state.op, problem);
  if (const plan::PlanState* plan = op_state.plans.hot.find(bucket)) return plan;
  const cuda::Context::Scope scope(op_state.owner.context);
  cuda::require_own(op_state.owner.context, stream);
  if (is_captured(stream))
    throw Error(
        ErrorKind::capture,
        fmt::format(
            "{} {} is not ready and the stream is capturing, during which nothing is tuned, compiled or loaded; call Engine::prepare with it before the capture",
            op_state.op.name, manifest::display_text(op_state.op, problem)));
  const cuda::RelaxedCapture relaxed;
  const auto build_it = [&] {
    return op_state.plans.make_once(bucket, [&] {
      auto made = build(op_state, problem, may_stand_in);
      op_state.owner.tell_of_files();  // what look-ups met
      begin_serving(op_state);
      if (op_state.owner.options.on_log) tell_fallback(op_state, *made, problem);
      return made;
    });
  };
  EngineState& engine = engine_of(op_state);
  const bool is_tuned_beside = engine.background && !op_state.op.is_of_team();
  const plan::PlanState* plan = nullptr;
  try {
    plan = build_it();
  } catch (const Error& error) {
    if (is_tuned_beside && error.kind() == ErrorKind::not_tuned) engine.background->want(op_state, bucket, nullptr);
    throw;
  }
  try {
    follow_up(op_state, *plan);
  } catch (const std::exception&) {  // no memory: the plan serves meanwhile
    engine.is_behind = true;
    return plan;
  }
  catch_up(engine);
  return plan;
}

void catch_up(EngineState& engine) noexcept try {
  if (!engine.is_behind.exchange(false)) return;
  try {
    engine.for_each_op([](plan::OpState& op_state) {
      std::vector<const plan::PlanState*> left;
      op_state.plans.for_each([&](const plan::BucketPlans& each) {
        const plan::PlanState* const hot = op_state.plans.hot.find(each.resolution.bucket.edge);
        if (hot == each.edge && hot != nullptr && !each.is_followed) left.push_back(hot);
      });
      for (const plan::PlanState* each : left) follow_up(op_state, *each);
    });
  } catch (...) {
    engine.is_behind = true;
    throw;
  }
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next call tries again
}

const plan::PlanState* make_ready(plan::OpState& op_state, const Problem& problem, CUstream stream) {
  const plan::PlanState* plan = make_hot(op_state, problem, stream, false);
  const cuda::Context::Scope scope(op_state.owner.context);
  const cuda::RelaxedCapture relaxed;
  if (plan->of.stand_in && !is_captured(stream)) {  // a launch was here before
    replace_stand_in(op_state, plan->bucket);
    plan = op_state.plans.hot.find(plan->bucket);
  }
  if (!is_captured(stream)) op_state.plans.make_all_sizes(plan->of);
  make_serving(op_state, plan->of, problem, stream);
  if (const plan::WorkspaceNeeds needs = plan->of.needs(); !needs.none() && !is_captured(stream))
    op_state.owner.workspaces->make(stream, needs);
  return plan;
}

void adopt(plan::OpState& op_state, answer::Resolution resolution, InPlaceOf present) {
  auto adopted = op_state.plans.load(std::move(resolution));
  plan::BucketPlans& of = *adopted;
  begin_serving(op_state);  // so far only captures may have asked for the op
  // Captures with lengths on the device must find the new plans as ready as the old.
  if (op_state.on_device != 0) op_state.plans.make_without_library(of, plan::PlanStore::Code::any);
  const std::string text =
      fmt::format("{} serves from now on", of.edge == nullptr ? "its record" : of.edge->answer.name());
  const std::string bucket = manifest::to_string(op_state.op, of.resolution.bucket.edge);
  if (present == InPlaceOf::anything)
    op_state.plans.publish(std::move(adopted));
  else if (!op_state.plans.publish_over_stand_in(std::move(adopted)))
    return;
  op_state.owner.tell(LogEvent::Kind::swap, op_state.op.name, bucket, text);
}

void replace_stand_in(plan::OpState& op_state, const Problem& bucket) {
  if (op_state.plans.stand_in_for(bucket) != nullptr) adopt_present(op_state, bucket, InPlaceOf::stand_in);
}

void load_all(plan::OpState& op_state) {
  if (op_state.op.is_of_team()) return;  // its plans are made by all ranks together
  const cuda::Context::Scope scope(op_state.owner.context);
  const cuda::RelaxedCapture relaxed;
  for (const store::Found<store::Record>& found : op_state.owner.layers.records(op_state.op.name)) {
    const auto bucket = manifest::parse_bucket(op_state.op, found.value.bucket);
    // Skips records of other devices and revisions.
    if (!bucket || manifest::Bucket({op_state.op, op_state.device(), op_state.owner.options.regime}, *bucket).key() !=
                       found.value.key)
      continue;
    if (op_state.plans.hot.find(*bucket) != nullptr) continue;  // from an earlier layer
    answer::Resolution resolution = op_state.resolve(*bucket, false);
    if (!resolution.is_hit()) continue;
    try {
      auto loaded = op_state.plans.load(std::move(resolution), plan::PlanStore::Code::stored);
      plan::BucketPlans& of = *loaded;
      op_state.plans.publish(std::move(loaded));
      op_state.plans.make_without_library(of, plan::PlanStore::Code::stored);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first launch that needs the record reports it
    }
  }
  begin_serving(op_state);
}

}  // namespace kiln::engine
