// A bucket that is not hot: look it up, load it, or tune it; then publish.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/lease.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

namespace kiln::engine {
namespace {

constexpr auto lease_patience = std::chrono::minutes(5);

}  // namespace

void OpState::begin_serving() {
  if (engine.histogram) engine.histogram->start();
  if (on_device_ != 0) engine.length_reports.open();
}

const PlanState* OpState::prepare(const Problem& problem, CUstream stream) {
  const Problem bucket = spec::bucket_of(op, problem);
  if (const PlanState* plan = hot.find(bucket)) return plan;
  const cuda::Context::Scope scope(engine.context);
  if (cuda::is_capturing(stream))
    throw Error(
        ErrorKind::capture,
        fmt::format(
            "{} {} is not ready and the stream is capturing: nothing is tuned, compiled or loaded then; call Op::plan before the capture",
            op.name, spec::to_string(op, problem)));
  begin_serving();
  if (!engine.background) return build_once(problem);
  const PlanState* plan = nullptr;
  try {
    plan = build_once(problem);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_tuned) engine.background->want(*this, bucket, nullptr);
    throw;
  }
  // Once it is published: a tune that ended sooner would be hidden by its own stand-in.
  if (is_stand_in(plan->origin)) engine.background->want(*this, bucket, plan);
  return plan;
}

const PlanState* OpState::build_once(const Problem& problem) {
  const Problem bucket = spec::bucket_of(op, problem);
  std::unique_lock lock(mutex_);
  const auto busy = [&] { return std::find(in_flight_.begin(), in_flight_.end(), bucket) != in_flight_.end(); };
  ready_.wait(lock, [&] { return !busy(); });
  if (const PlanState* plan = hot.find(bucket)) return plan;
  in_flight_.push_back(bucket);
  lock.unlock();
  std::unique_ptr<PlanState> plan;
  std::exception_ptr failure;
  try {
    plan = build(problem);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  std::erase(in_flight_, bucket);
  ready_.notify_all();
  if (failure) std::rethrow_exception(failure);
  const PlanState* published = plans_.emplace_back(std::move(plan)).get();
  hot.publish(bucket, published);
  return published;
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
  const tune::TuneRequest request{.op = op,
                                  .bucket = lookup.bucket,
                                  .key = lookup.key,
                                  .device = engine.context.info(),
                                  .regime = engine.options.regime,
                                  .arch = engine.arch(),
                                  .search = engine.options.search,
                                  .worker = engine.worker.get(),
                                  .stop_requested = engine.options.stop_requested,
                                  .on_event = engine.options.on_tune};
  tune::publish(request, tune::tune_bucket(request, engine.cubins), engine.cubins);
  engine.counters.count_tune();
  return load(look_up(op, lookup.bucket, engine.context.info().facts, engine.options.regime, engine.layers, false));
}

void OpState::adopt(const Lookup& lookup) {
  auto plan = load(lookup);
  const std::lock_guard lock(mutex_);
  plan->replaced = hot.find(lookup.bucket);
  for (const PlanState::LowerPart& part : plan->lower_parts) part.plan->replaced = plan->replaced;
  hot.publish(lookup.bucket, plans_.emplace_back(std::move(plan)).get());
}

/// Loaded before, from the files, or compiled and kept there; of a record, what the files lacked is counted. The compiler that a record
/// names is tried first: where there is no NVRTC, files need not be searched for the names of others.
std::shared_ptr<jit::Module> OpState::module_of(const spec::Implementation& implementation,
                                                std::span<const std::int64_t> frame, const Lookup& lookup, Code code) {
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
  plan->implementation = implementation.name;
  plan->config = spec::to_string(implementation, lookup.config);
  plan->cost_ns = lookup.cost_ns;
  plan->stale = lookup.stale;
  if (lookup.stale) engine.counters.count_stale();
  return plan;
}

const PlanState* OpState::fallback(const spec::Implementation& implementation, const Problem& bucket, CUstream stream) {
  std::vector<std::int64_t> key(bucket.axes.begin(), bucket.axes.end());
  key.insert(key.end(), bucket.selections.begin(), bucket.selections.end());
  const std::lock_guard lock(mutex_);
  auto& plan = fallbacks_[{implementation.name, std::move(key)}];
  if (plan) return plan.get();
  const cuda::Context::Scope scope(engine.context);
  if (cuda::is_capturing(stream))
    throw Error(
        ErrorKind::capture,
        fmt::format(
            "{}: the default of '{}' must be loaded to serve this call and the stream is capturing; launch once before the capture",
            op.name, implementation.name));
  Lookup lookup;
  lookup.bucket = bucket;
  lookup.implementation = &implementation;
  lookup.config = implementation.default_config;
  plan = load(lookup);
  return plan.get();
}

}  // namespace kiln::engine
