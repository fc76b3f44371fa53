// A bucket that is not hot: look it up, load it, or tune it; then publish.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cuda/stream_owner.hpp"
#include "engine/lease.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

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
  if (const PlanState* plan = hot.find(bucket)) return plan;
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
    return make_once(hot, bucket, [&] {
      auto plan = build(problem);
      begin_serving();
      return plan;
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
  const auto make_those = [&](const PlanState& of) {
    if (is_captured(stream)) {
      if (of.serves(stream)) return;
      throw Error(
          ErrorKind::capture,
          fmt::format(
              "{} {}: its plan has no workspace for this stream, which is capturing; call Engine::prepare with both before the capture",
              op.name, spec::to_string(op, problem)));
    }
    make_workspaces(of, stream);
  };
  make_those(*plan);
  const PlanState& part = plan->at(problem);
  const bool is_served = !broken_constraint(part, problem);
  // What a library refuses is not known before it is launched, and a length on the device it never takes.
  if (is_served && !part.executable.is_library()) return plan;
  try {
    if (const PlanState* other = standing_behind(part, problem, stream)) make_those(*other);
  } catch (const Error&) {
    if (!is_served) throw;  // else most launches need none
  }
  return plan;
}

const PlanState* OpState::standing_behind(const PlanState& part, const Problem& problem, CUstream stream) {
  const bool may_make = !is_captured(stream);
  const PlanState* other = part.made_runner_up();
  if (other == nullptr && part.runner_up != nullptr && may_make) other = make_runner_up(part, Code::any);
  if (other != nullptr && !broken_constraint(*other, problem)) return other;
  const spec::Implementation* standing_in = default_at(problem);
  if (standing_in == nullptr) return nullptr;
  const Problem bucket = spec::bucket_of(op, problem);
  return may_make ? fallback(*standing_in, bucket) : loaded_fallback(*standing_in, bucket);
}

const PlanState* OpState::make_once(HotTable& table, const Problem& bucket,
                                    const std::function<std::unique_ptr<PlanState>()>& make) {
  const std::pair<const HotTable*, Problem> making{&table, bucket};
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return std::find(in_flight_.begin(), in_flight_.end(), making) == in_flight_.end(); });
  if (const PlanState* plan = table.find(bucket)) return plan;
  in_flight_.push_back(making);
  lock.unlock();
  std::unique_ptr<PlanState> plan;
  std::exception_ptr failure;
  try {
    plan = make();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  std::erase(in_flight_, making);
  ready_.notify_all();
  if (failure) std::rethrow_exception(failure);
  const PlanState* made = plans_.emplace_back(std::move(plan)).get();
  // A tune in the background may have ended meanwhile: its stand-in must not hide the winner.
  if (const PlanState* winner = table.find(bucket)) return winner;
  table.publish(bucket, made);
  return made;
}

std::unique_ptr<PlanState> OpState::build(const Problem& problem) {
  const spec::DeviceFacts& facts = engine.context.info().facts;
  const bool stand_ins =
      engine.options.on_miss == MissPolicy::nearest || engine.options.on_miss == MissPolicy::background;
  Lookup lookup = look_up(op, problem, facts, engine.options.regime, engine.layers, stand_ins);
  if (lookup.miss) engine.counters.count(*lookup.miss);
  if (lookup.is_hit()) return load(lookup);
  switch (engine.options.on_miss) {
    case MissPolicy::tune: return tune(lookup);
    case MissPolicy::background:
    case MissPolicy::nearest: make_servable(lookup, op, facts, engine.arch(), engine.cubins); return load(lookup);
    case MissPolicy::error: break;
  }
  throw Error(
      ErrorKind::not_tuned,
      fmt::format(
          "no record for {}{}; tune it (kiln tune {} ...), add the base file that holds it, or choose another miss policy",
          lookup.key, lookup.record_unusable.empty() ? "" : " that can serve: " + lookup.record_unusable, op.name));
}

std::unique_ptr<PlanState> OpState::tune(const Lookup& lookup) {
  Lease lease(engine.layers, lookup.key, engine.holder);
  const auto deadline = std::chrono::steady_clock::now() + lease_patience;
  while (!lease.acquire()) {
    std::this_thread::sleep_for(lease_poll);
    const Lookup again = look_up(op, lookup.bucket, engine.context.info().facts, engine.options.regime, engine.layers,
                                 std::chrono::steady_clock::now() > deadline);
    if (again.implementation != nullptr) return load(again);
  }
  // Another process may have finished between the miss and the lease.
  const Lookup again =
      look_up(op, lookup.bucket, engine.context.info().facts, engine.options.regime, engine.layers, false);
  if (again.is_hit()) return load(again);
  const std::lock_guard lock(engine.tune_mutex);
  const tune::TuneRequest request = engine.tune_request(op, lookup.bucket);
  tune::publish(request, tune::tune_bucket(request, engine.cubins), engine.cubins);
  engine.counters.count_tune();
  return load(look_up(op, lookup.bucket, engine.context.info().facts, engine.options.regime, engine.layers, false));
}

void OpState::adopt(const Lookup& lookup) {
  auto plan = load(lookup);
  begin_serving();  // captures alone may have asked for the op so far
  // Captures that found what it replaces ready for a length on the device find this too.
  if (on_device_ != 0) make_runner_ups(*plan, Code::any);
  if (const PlanState* before = hot.find(lookup.bucket)) plan->make_workspaces_as(*before->workspaces);
  make_missed_workspaces(*plan);
  const PlanState& adopted = *plan;
  {
    const std::lock_guard lock(mutex_);
    hot.publish(lookup.bucket, plans_.emplace_back(std::move(plan)).get());
  }
  make_missed_workspaces(adopted);  // of captures that looked just before
}

/// Loaded before, from the files, or compiled and kept there; of a record, what the files lacked is counted. The compiler that a record
/// names is tried first: where there is no NVRTC, files need not be searched for the names of others.
std::shared_ptr<jit::Module> OpState::module_of(const spec::Implementation& implementation,
                                                std::span<const std::int64_t> frame, const Lookup& lookup, Code code) {
  if (implementation.is_library()) return nullptr;
  store::Counters met;
  if (lookup.record && engine.cubins.accepts(lookup.record->value.provenance.compiler)) {
    const std::string& compiler = lookup.record->value.provenance.compiler;
    const auto timed = jit::specialise(op, implementation, frame, jit::target_arch(engine.context.info().facts.sm()));
    if (auto loaded = engine.modules.find(jit::cubin_key(timed, compiler))) return loaded;
    if (const auto found = engine.cubins.find_under(compiler, timed, &met))
      return load_module(*found, implementation, frame);
  }
  const jit::Specialisation specialisation = jit::specialise(op, implementation, frame, engine.arch());
  if (const auto found = engine.cubins.find(specialisation, &met)) return load_module(*found, implementation, frame);
  if (code == Code::stored)
    throw Error(ErrorKind::not_tuned, fmt::format("no file has machine code of {}", specialisation.label));
  if (lookup.is_hit()) engine.counters.count(reason_of(met, Miss::no_cubin));
  return load_module(engine.cubins.compile_and_keep(specialisation), implementation, frame);
}

/// A stored cubin that the driver refuses is set aside and compiled once more.
std::shared_ptr<jit::Module> OpState::load_module(const tune::KeyedCubin& cubin,
                                                  const spec::Implementation& implementation,
                                                  std::span<const std::int64_t> frame) {
  try {
    return engine.modules.get(cubin.key, cubin.cubin);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver_failed || !cubin.from_store) throw;
    engine.counters.count(Miss::refused_cubin);
    if (!engine.cubins.can_compile()) throw;
  }
  const auto afresh = engine.cubins.replace(jit::specialise(op, implementation, frame, engine.arch()));
  return engine.modules.get(afresh.key, afresh.cubin);
}

jit::Executable OpState::load_executable(const spec::Implementation& implementation,
                                         std::span<const std::int64_t> frame, const Lookup& lookup, Code code) {
  try {
    return {op, implementation, frame, module_of(implementation, frame, lookup, code)};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver_failed) throw;
    throw Error(ErrorKind::driver_failed, fmt::format("{}/{} {}: {}", op.name, implementation.name,
                                                      spec::to_string(implementation, lookup.config), error.what()));
  }
}

/// With all parts of a bucket that is split. A lower part that cannot be made ready leaves its sizes to the one above it.
std::unique_ptr<PlanState> OpState::load(const Lookup& lookup, Code code) {
  auto plan = load_part(lookup, code);
  for (std::int64_t i = 0; i < lookup.unusable_refinements; ++i) engine.counters.count(Miss::unusable);
  for (const tune::Refinement& each : lookup.refinements) {
    try {
      plan->split_axis = *spec::refined_axis(op);
      plan->lower_parts.push_back({each.edge, load_part(lower_part(lookup, each), code)});
    } catch (const Error& error) {
      engine.warn(fmt::format("{}: the record '{}' is left out: {}", op.name, each.record.key, error.what()));
    }
  }
  return plan;
}

std::unique_ptr<PlanState> OpState::load_part(const Lookup& lookup, Code code) {
  if (lookup.implementation == nullptr) throw Error(ErrorKind::not_tuned, lookup.why);
  const spec::Implementation& implementation = *lookup.implementation;
  const auto frame = spec::make_frame(op, &implementation, lookup.bucket, engine.context.info().facts, lookup.config);
  auto plan =
      std::make_unique<PlanState>(lookup.bucket, load_executable(implementation, frame, lookup, code), lookup.origin);
  plan->described = &implementation;
  plan->values = lookup.config;
  plan->implementation = implementation.name;
  plan->config = spec::to_string(implementation, lookup.config);
  plan->cost_ns = lookup.cost_ns;
  plan->stale = lookup.stale;
  if (lookup.runner_up) plan->runner_up = std::make_unique<PlanState::RunnerUp>(without_library(lookup));
  if (lookup.stale) engine.counters.count_stale();
  return plan;
}

}  // namespace kiln::engine
