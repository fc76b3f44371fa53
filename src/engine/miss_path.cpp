// A bucket that is not hot: look it up, load it, or tune it; then publish.
#include <fmt/format.h>

#include <chrono>

#include "cuda/stream_owner.hpp"
#include "engine/op_state.hpp"
#include "engine/state.hpp"
#include "engine/tuning.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

constexpr auto lease_patience = std::chrono::minutes(5);

/// By itself: what is made ready for the legacy stream, while one in order with it captures, enqueues nothing on it.
bool is_captured(CUstream stream) { return cuda::capture_state(stream) == cuda::CaptureState::capturing; }

}  // namespace

void OpState::begin_serving() {
  if (engine.histogram) engine.histogram->start();
  if (on_device_ != 0) engine.length_reports.open();
}

const PlanState* OpState::prepare(const Problem& problem, CUstream stream) {
  const Problem bucket = spec::bucket_of(op, problem);
  if (const PlanState* plan = plans.hot.find(bucket)) return plan;
  const cuda::Context::Scope scope(engine.context);
  cuda::require_own(engine.context, stream);
  if (is_captured(stream))
    throw Error(
        ErrorKind::capture,
        fmt::format(
            "{} {} is not ready and the stream is capturing, during which nothing is tuned, compiled or loaded; call Engine::prepare with it before the capture",
            op.name, spec::to_string(op, problem)));
  const cuda::RelaxedCapture relaxed;
  const auto build_it = [&] {
    return plans.make_once(bucket, [&] {
      auto made = build(problem);
      begin_serving();
      return made;
    });
  };
  if (!engine.background) return build_it();
  const PlanState* plan = nullptr;
  try {
    plan = build_it();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_tuned) engine.background->want(*this, bucket, nullptr);
    throw;
  }
  // Once it is published, so that what it serves counts for it.
  if (is_stand_in(plan->origin)) engine.background->want(*this, bucket, plan);
  return plan;
}

const PlanState* OpState::make_ready(const Problem& problem, CUstream stream) {
  const PlanState* plan = prepare(problem, stream);
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  const bool is_capturing = is_captured(stream);
  if (!is_capturing)
    captures.make_workspaces(plan->of, stream);
  else
    require_workspace(plan->of.serves(stream), problem);
  make_serving(plan->of, problem, stream);
  return plan;
}

/// The first answer that serves, and behind a library one that needs none: what a library refuses is not known before it is launched, and a
/// length on the device it never takes. Most launches need none.
void OpState::make_serving(BucketPlans& of, const Problem& problem, CUstream stream) {
  const bool is_capturing = is_captured(stream);
  bool is_behind_library = false;
  std::size_t answer = served(of, problem).index;
  for (; answer < of.answers().size(); answer = served(of, problem, is_behind_library, answer + 1).index) {
    PlanSlot& slot = of.slot(answer);
    const PlanState* plan = nullptr;
    try {
      plan = is_capturing ? slot.made() : plans.make(slot, of, PlanStore::Code::any);
      if (plan != nullptr && !is_capturing) plan->workspaces->make(stream);
      if (plan != nullptr) require_workspace(plan->workspaces->serves(stream), problem);
    } catch (const Error&) {
      if (!is_behind_library) throw;
      return;
    }
    if (plan == nullptr) continue;
    if (!plan->executable.is_library()) return;
    is_behind_library = true;
  }
}

void OpState::require_workspace(bool is_there, const Problem& problem) const {
  if (is_there) return;
  throw Error(
      ErrorKind::capture,
      fmt::format(
          "{} {}: its plan has no workspace for this stream, which is capturing; call Engine::prepare with both before the capture",
          op.name, spec::to_string(op, problem)));
}

Resolution OpState::resolve(const Problem& problem, bool stand_ins) const {
  return engine::resolve(op, problem, engine.context.info().facts, engine.options.regime, engine.layers, stand_ins);
}

std::unique_ptr<BucketPlans> OpState::build(const Problem& problem) {
  const bool stand_ins =
      engine.options.on_miss == MissPolicy::nearest || engine.options.on_miss == MissPolicy::background;
  Resolution resolution = resolve(problem, stand_ins);
  if (resolution.miss) engine.counters.count(*resolution.miss);
  if (resolution.is_hit()) return plans.load(std::move(resolution));
  switch (engine.options.on_miss) {
    case MissPolicy::tune: return tune(resolution);
    case MissPolicy::background:
    case MissPolicy::nearest:
      leave_servable(resolution, op, engine.context.info().facts, engine.arch(), engine.cubins);
      return plans.load(std::move(resolution));
    case MissPolicy::error: break;
  }
  throw Error(
      ErrorKind::not_tuned,
      fmt::format(
          "no record for {}{}; tune it (kiln tune {} ...), add the base file that holds it, or choose another miss policy",
          resolution.key, resolution.unusable.empty() ? "" : " that can serve: " + resolution.unusable, op.name));
}

std::unique_ptr<BucketPlans> OpState::tune(const Resolution& missed) {
  TuneOutcome outcome = tune_once(engine, op, missed.bucket, {.patience = lease_patience});
  if (outcome.end != TuneOutcome::End::held_elsewhere) return plans.load(std::move(outcome.resolution));
  Resolution stand_in = resolve(missed.bucket, true);
  leave_servable(stand_in, op, engine.context.info().facts, engine.arch(), engine.cubins);
  return plans.load(std::move(stand_in));
}

void OpState::adopt(Resolution resolution) {
  const Problem bucket = resolution.bucket;
  auto adopted = plans.load(std::move(resolution));
  BucketPlans& of = *adopted;
  begin_serving();  // captures alone may have asked for the op so far
  // Captures that found what it replaces ready for a length on the device find this too.
  if (on_device_ != 0) plans.make_without_library(of, PlanStore::Code::any);
  if (const PlanState* before = plans.hot.find(bucket)) of.make_workspaces_as(*before->workspaces);
  captures.make_missed_workspaces(of);
  plans.publish(std::move(adopted));
  captures.make_missed_workspaces(of);  // of captures that looked just before
}

void OpState::load_all() {
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  const spec::DeviceFacts& device = engine.context.info().facts;
  for (const store::Found<store::Record>& found : engine.layers.records(op.name)) {
    const auto bucket = spec::parse_bucket(op, found.value.bucket);
    // Another device's, or another revision's.
    if (!bucket || spec::record_key(op, *bucket, device, engine.options.regime) != found.value.key) continue;
    if (plans.hot.find(*bucket) != nullptr) continue;  // an earlier layer's
    Resolution resolution = resolve(*bucket, false);
    if (!resolution.is_hit()) continue;
    try {
      auto loaded = plans.load(std::move(resolution), PlanStore::Code::stored);
      BucketPlans& of = *loaded;
      plans.publish(std::move(loaded));
      plans.make_without_library(of, PlanStore::Code::stored);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first launch that needs it meets the same and says so
    }
  }
  begin_serving();
}

}  // namespace kiln::engine
