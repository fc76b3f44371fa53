#include "engine/miss_path.hpp"

#include <fmt/format.h>

#include <chrono>

#include "answer/machine_code.hpp"
#include "cuda/stream_owner.hpp"
#include "engine/capture_launch.hpp"
#include "engine/hit_path.hpp"
#include "engine/state.hpp"
#include "engine/team_plans.hpp"
#include "engine/tuning.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

constexpr auto lease_patience = std::chrono::minutes(5);

/// Whether `stream` itself captures. Making ready enqueues nothing on the legacy stream, so a capture ordered with it does not count.
bool is_captured(CUstream stream) { return cuda::capture_state(stream) == cuda::CaptureState::capturing; }

/// Begins what launches need besides plans.
void begin_serving(OpState& state) {
  if (state.engine.histogram) state.engine.histogram->start();
  if (state.reports) state.engine.length_reports.open();
}

/// Loads the first answer that serves the problem. Behind a library loads the next one that needs none, for launches that the library declines
/// and for lengths on the device.
void make_serving(OpState& state, BucketPlans& of, const Problem& problem, CUstream stream) {
  const bool is_capturing = is_captured(stream);
  bool is_behind_library = false;
  std::size_t answer = of.first(problem).index;
  for (; answer < of.answers().size(); answer = of.first(problem, is_behind_library, answer + 1).index) {
    PlanSlot& slot = of.slot(answer);
    const PlanState* plan = nullptr;
    try {
      plan = is_capturing ? slot.made() : state.plans.make(slot, of, PlanStore::Code::any);
    } catch (const Error&) {
      if (!is_behind_library) throw;
      return;
    }
    if (plan == nullptr) continue;
    if (!plan->executable.is_library()) return;
    is_behind_library = true;
  }
}

std::unique_ptr<BucketPlans> tune_missed(OpState& state, const answer::Resolution& missed) {
  TuneOutcome outcome = tune_once(state.engine, state.op, missed.bucket.edge, {.patience = lease_patience});
  if (outcome.end != TuneOutcome::End::held_elsewhere) return state.plans.load(std::move(outcome.resolution));
  state.engine.warn(fmt::format("{} is served by a fallback: for {} minutes {} has been tuning it",
                                missed.bucket.text(), lease_patience.count(),
                                outcome.holder.empty() ? "another process" : outcome.holder));
  answer::Resolution fallback = state.resolve(missed.bucket.edge, true);
  answer::leave_servable(fallback, state.engine.arch(), state.engine.cubins);
  return state.plans.load(std::move(fallback));
}

std::unique_ptr<BucketPlans> build(OpState& state, const Problem& problem) {
  if (state.op.is_of_team()) return build_with_team(state, problem);
  answer::Resolution resolution = state.resolve(problem, state.takes_fallbacks());
  if (resolution.miss) state.engine.counters.count(*resolution.miss);
  if (resolution.is_hit()) return state.plans.load(std::move(resolution));
  switch (state.engine.options.on_miss) {
    case MissPolicy::tune: return tune_missed(state, resolution);
    case MissPolicy::background:
    case MissPolicy::nearest:
      answer::leave_servable(resolution, state.engine.arch(), state.engine.cubins);
      return state.plans.load(std::move(resolution));
    case MissPolicy::error: break;
  }
  throw Error(
      ErrorKind::not_tuned,
      fmt::format(
          "no record for {}{}; tune it (kiln tune {} ...), add the base file that holds it, or choose another miss policy",
          resolution.key, resolution.unusable.empty() ? "" : " that can serve: " + resolution.unusable, state.op.name));
}

}  // namespace

Origin launch_missed(OpState& state, const Problem& problem, const Arguments& arguments, CUstream stream) {
  manifest::check_allowed(state.op, problem);
  if (!captures(state, stream) || state.op.is_of_team())
    return launch_plan(state, *make_hot(state, problem, stream), problem, arguments, stream);
  if (state.engine.background) state.engine.background->want(state, manifest::bucket_of(state.op, problem), nullptr);
  return launch_in_capture(state, problem, arguments, stream, "no plan of its bucket is ready");
}

const PlanState* make_hot(OpState& state, const Problem& problem, CUstream stream) {
  const Problem bucket = manifest::bucket_of(state.op, problem);
  if (const PlanState* plan = state.plans.hot.find(bucket)) return plan;
  const cuda::Context::Scope scope(state.engine.context);
  cuda::require_own(state.engine.context, stream);
  if (is_captured(stream))
    throw Error(
        ErrorKind::capture,
        fmt::format(
            "{} {} is not ready and the stream is capturing, during which nothing is tuned, compiled or loaded; call Engine::prepare with it before the capture",
            state.op.name, manifest::display_text(state.op, problem)));
  const cuda::RelaxedCapture relaxed;
  const auto build_it = [&] {
    return state.plans.make_once(bucket, [&] {
      auto made = build(state, problem);
      begin_serving(state);
      return made;
    });
  };
  if (!state.engine.background || state.op.is_of_team()) return build_it();
  const PlanState* plan = nullptr;
  try {
    plan = build_it();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_tuned) state.engine.background->want(state, bucket, nullptr);
    throw;
  }
  // After its publication, so that its launches are counted.
  if (is_fallback(plan->origin)) state.engine.background->want(state, bucket, plan);
  return plan;
}

const PlanState* make_ready(OpState& state, const Problem& problem, CUstream stream) {
  const PlanState* plan = make_hot(state, problem, stream);
  const cuda::Context::Scope scope(state.engine.context);
  const cuda::RelaxedCapture relaxed;
  make_serving(state, plan->of, problem, stream);
  if (const WorkspaceNeeds needs = plan->of.needs(); !needs.none() && !is_captured(stream))
    state.engine.workspaces->make(stream, needs);
  return plan;
}

void adopt(OpState& state, answer::Resolution resolution) {
  auto adopted = state.plans.load(std::move(resolution));
  BucketPlans& of = *adopted;
  begin_serving(state);  // so far only captures may have asked for the op
  // Captures with lengths on the device must find the new plans as ready as the old.
  if (state.on_device != 0) state.plans.make_without_library(of, PlanStore::Code::any);
  state.plans.publish(std::move(adopted));
}

void load_all(OpState& state) {
  if (state.op.is_of_team()) return;  // its plans are made by all ranks together
  const cuda::Context::Scope scope(state.engine.context);
  const cuda::RelaxedCapture relaxed;
  for (const store::Found<store::Record>& found : state.engine.layers.records(state.op.name)) {
    const auto bucket = manifest::parse_bucket(state.op, found.value.bucket);
    // Skips records of other devices and revisions.
    if (!bucket ||
        manifest::Bucket({state.op, state.device(), state.engine.options.regime}, *bucket).key() != found.value.key)
      continue;
    if (state.plans.hot.find(*bucket) != nullptr) continue;  // from an earlier layer
    answer::Resolution resolution = state.resolve(*bucket, false);
    if (!resolution.is_hit()) continue;
    try {
      auto loaded = state.plans.load(std::move(resolution), PlanStore::Code::stored);
      BucketPlans& of = *loaded;
      state.plans.publish(std::move(loaded));
      state.plans.make_without_library(of, PlanStore::Code::stored);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first launch that needs the record reports it
    }
  }
  begin_serving(state);
}

}  // namespace kiln::engine
