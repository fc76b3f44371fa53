// kiln::Tuner, and what its engines are made of.
#include "kiln/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "engine/tune_job.hpp"
#include "engine/tune_once.hpp"
#include "kiln/error.hpp"
#include "kiln/team.hpp"
#include "manifest/problem_set.hpp"
#include "manifest/text.hpp"
#include "tune/deployment.hpp"

namespace kiln::engine {
namespace {

using manifest::OpBucket;

Options options_for(const Options& options, int ordinal, std::size_t devices) {
  Options own = options;
  own.device = ordinal;
  if (options.team != nullptr && options.team->device() != ordinal) own.team = nullptr;
  const auto cores = static_cast<std::size_t>(jit::compiles_at_once(options.compile_workers));
  own.compile_workers = static_cast<int>(std::max<std::size_t>(1, cores / devices));
  return own;
}

}  // namespace

TunerState::TunerState(const Options& options, std::span<const int> ordinals) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorKind::bad_input, message); };
  if (ordinals.empty()) refuse("a Tuner was asked for on no device; name one, or leave the list out");
  const auto overlay = options.overlay ? options.overlay : store::default_overlay();
  if (ordinals.size() > 1 && overlay && overlay->empty())
    refuse("several devices fill one overlay, so it must be a file: an empty path keeps it in memory");
  cuda::require_not_forked();  // before the driver is called, by whose locks a child may hang
  const cuda::RelaxedCapture relaxed;
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (std::ranges::find(ordinals.first(i), ordinals[i]) != ordinals.first(i).end())
      refuse(fmt::format("the device {} is named twice", ordinals[i]));
    add(make_owned<EngineState>(options_for(options, ordinals[i], ordinals.size())), false);
  }
  if (options.team == nullptr) return;
  if (of_team() == nullptr)
    refuse(fmt::format("the team '{}' has this rank on device {}, which is not among the Tuner's; add it",
                       options.team->name(), options.team->device()));
  if (classes() > 1) refuse("the devices are of several classes, and a team's Tuner is for one; make a Tuner for each");
  first_of_class.front() = of_team();  // whose facts have the link, which is in keys of the team's ops
}

TunerState::TunerState(std::shared_ptr<EngineState> engine) {
  cuda::require_not_forked();
  add(std::move(engine), true);
}

void TunerState::add(std::shared_ptr<EngineState> engine, bool is_shared) {
  const std::string device_class = engine->context.info().facts.device_class();
  TunerDevice& device = *devices.emplace_back(std::make_unique<TunerDevice>(std::move(engine), is_shared));
  const auto known = std::ranges::find(first_of_class, device_class, [](const TunerDevice* each) {
    return each->engine->context.info().facts.device_class();
  });
  device.device_class = static_cast<std::size_t>(known - first_of_class.begin());
  if (known == first_of_class.end()) first_of_class.push_back(&device);
}

TunerDevice* TunerState::of_team() const noexcept {
  for (const auto& each : devices)
    if (each->engine->team != nullptr) return each.get();
  return nullptr;
}

namespace {

/// The distinct buckets of some demands. Throws Error(bad_input) for a demand that is no problem of its op.
std::vector<OpBucket> buckets_of(TunerState& tuner, std::span<const Demand> demands) {
  EngineState& engine = tuner.first();
  std::vector<OpBucket> buckets;
  std::set<std::pair<const manifest::Op*, std::string>> seen;
  for (const Demand& each : demands) {
    const manifest::Op& op = engine.ops[engine.ops.index_of(each.op)];
    manifest::check_problem(op, each.problem);
    const Problem bucket = manifest::bucket_of(op, each.problem);
    if (seen.emplace(&op, manifest::to_string(op, bucket)).second) buckets.push_back({&op, bucket});
  }
  return buckets;
}

/// Tuner::deploy for one class of device; `path` may be empty.
Deployment deploy(TunerState& tuner, std::size_t device_class, std::span<const OpBucket> buckets,
                  const std::filesystem::path& path, const TuneChoice& choice) {
  cuda::require_not_forked();
  refuse_within_callback(tuner);
  const std::lock_guard lock(tuner.working);
  TunerDevice& device = *tuner.first_of_class[device_class];
  EngineState& engine = *device.engine;
  const WithinTune within(engine);
  const cuda::RelaxedCapture relaxed;
  const cuda::Context::Scope scope(engine.context);  // where a library is asked what it takes
  const auto& own_stop = engine.options.stop_requested;
  return tune::deploy(buckets, path,
                      {.device = engine.context.info().facts,
                       .arch = engine.arch(),
                       .regime = engine.options.regime,
                       .layers = engine.layers,
                       .cubins = device.cubins,
                       .pool = device.pool,
                       .replace = choice.replace,
                       .stop_requested = [&] { return choice.stop.stop_requested() || (own_stop && own_stop()); },
                       .on_step = choice.on_compile});
}

}  // namespace
}  // namespace kiln::engine

namespace kiln {

Tuner::Tuner(const Options& options) : Tuner(options, {&options.device, 1}) {}

Tuner::Tuner(const Options& options, std::span<const int> devices)
    : state_(engine::make_owned<engine::TunerState>(options, devices)) {}

Tuner::Tuner(const Engine& engine) : state_(engine::make_owned<engine::TunerState>(engine.state_)) {}

Op Tuner::op(std::string_view name) const {
  const auto& engine = state_->devices.front()->engine;
  return Op(std::shared_ptr<plan::OpState>(engine, &engine->op_state(engine->ops.index_of(name))));
}

std::vector<Demand> Tuner::between(std::string_view op, const Problem& low, const Problem& high) const {
  const manifest::Op& described = state_->first().ops[state_->first().ops.index_of(op)];
  const auto refuse = [&](const std::string& message) {
    throw Error(ErrorKind::bad_input, fmt::format("op '{}': {}", op, message));
  };
  for (const Problem* each : {&low, &high}) manifest::check_problem(described, *each);
  if (low.selections != high.selections) refuse("the two problems differ in a type or a choice, expected the same");
  manifest::ProblemSet set;
  for (std::size_t i = 0; i < described.axes.size(); ++i) {
    if (low.axes[i] > high.axes[i])
      refuse(fmt::format("axis '{}' is {} in the lower problem and {} in the upper one", described.axes[i].name,
                         low.axes[i], high.axes[i]));
    set.axes.push_back({{low.axes[i], high.axes[i]}});
  }
  for (std::size_t i = 0; i < described.selections.size(); ++i) set.selections.push_back({low.selections[i]});
  std::vector<Demand> demands;
  for (const Problem& bucket : manifest::buckets_of(described, set)) demands.push_back({described.name, bucket});
  return demands;
}

TuneReport Tuner::tune(std::span<const Demand> demands, const TuneChoice& choice) const {
  return engine::tune_buckets(*state_, engine::buckets_of(*state_, demands), choice);
}

std::vector<Deployment> Tuner::compile(std::span<const Demand> demands, const TuneChoice& choice) const {
  const auto buckets = engine::buckets_of(*state_, demands);
  std::vector<Deployment> deployments;
  for (std::size_t i = 0; i < state_->classes(); ++i)
    deployments.push_back(engine::deploy(*state_, i, buckets, {}, choice));
  return deployments;
}

Prewarmed Tuner::prewarm(std::span<const Demand> demands, const TuneChoice& choice) const {
  Prewarmed result{tune(demands, choice), {}};
  if (!result.tuned.interrupted) result.deployments = compile(demands, choice);
  return result;
}

Deployment Tuner::deploy(std::span<const Demand> demands, const std::filesystem::path& path,
                         const TuneChoice& choice) const {
  if (state_->classes() > 1)
    throw Error(ErrorKind::bad_input,
                "the devices are of several classes and a file to deploy is for one; deploy with a Tuner for each");
  if (path.extension() != ".kiln")
    throw Error(ErrorKind::bad_input,
                fmt::format("the file to deploy is '{}', expected a name that ends in .kiln", path.string()));
  std::error_code ignored;
  if (!path.parent_path().empty() && !std::filesystem::is_directory(path.parent_path(), ignored))
    throw Error(
        ErrorKind::bad_input,
        fmt::format("the folder of the file to deploy, '{}', does not exist; make it, or name another", path.string()));
  return engine::deploy(*state_, 0, engine::buckets_of(*state_, demands), path, choice);
}

std::string Tuner::not_kept() const {
  cuda::require_not_forked();
  for (const auto& device : state_->devices)
    if (std::string why = device->engine->layers.not_kept(); !why.empty()) return why;
  return {};
}

std::vector<std::string> Tuner::warnings() const {
  std::vector<std::string> all;
  for (const auto& device : state_->devices)
    for (std::string& each : device->engine->warnings())
      if (std::ranges::find(all, each) == all.end()) all.push_back(std::move(each));
  return all;
}

}  // namespace kiln
