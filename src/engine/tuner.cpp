// Tuner on the states of engines, one for each GPU. All fill one overlay.
#include "kiln/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "answer/expected_times.hpp"
#include "engine/miss_path.hpp"
#include "engine/state.hpp"
#include "engine/team/agree.hpp"
#include "engine/tune_once.hpp"
#include "kiln/error.hpp"
#include "kiln/team.hpp"
#include "manifest/op_bucket.hpp"
#include "manifest/problem_set.hpp"
#include "manifest/text.hpp"
#include "team/exchange.hpp"
#include "tune/deployment.hpp"
#include "tune/team_tunes.hpp"

namespace kiln::engine {

struct TunerDevice {
  TunerDevice(std::shared_ptr<State> engine, bool shared)
      : state(std::move(engine)),
        is_shared(shared),
        pool(compile_settings(state->options)),
        cubins(state->layers, pool) {}
  std::shared_ptr<State> state;
  bool is_shared;  // whether an Engine launches with this state meanwhile
  /// Separate from the engine's pool, where a launch would wait behind candidates, and a stop would drop its compiles.
  jit::CompilePool pool;
  answer::Cubins cubins;
  std::size_t device_class = 0;  // index into TunerState::first_of_class
};

struct TunerState {
  TunerState(const Options& options, std::span<const int> ordinals);
  explicit TunerState(std::shared_ptr<State> engine);
  [[nodiscard]] State& first() const noexcept { return *devices.front()->state; }
  [[nodiscard]] std::size_t classes() const noexcept { return first_of_class.size(); }
  /// The device of this rank in the team; null without a team.
  [[nodiscard]] TunerDevice* of_team() const noexcept;

  std::vector<std::unique_ptr<TunerDevice>> devices;
  std::vector<TunerDevice*> first_of_class;
  std::mutex working;  // one call tunes or compiles at a time

 private:
  void add(std::shared_ptr<State> state, bool is_shared);
};

namespace {

using manifest::OpBucket;

/// A rough estimate of a tune in nanoseconds: each candidate is compiled, then launched a few hundred times.
double tuning_ns(const OpBucket& bucket, State& state, answer::ExpectedTimes& times) {
  const manifest::Bucket at = bucket.on(state.context.info().facts);
  double candidates = 0;
  for (const manifest::Implementation& each : bucket.op->implementations)
    if (!manifest::why_not_eligible(at, each, at.edge))
      candidates += static_cast<double>(manifest::searched_space(at, each, at.edge).size());
  constexpr double compile_ns = 50e6, launches = 300;
  return candidates * (compile_ns + launches * times.of(*bucket.op, bucket.bucket));
}

/// Indices of the buckets of ops of a team, or of the others, in the order of the buckets.
std::vector<std::size_t> indices_of(std::span<const OpBucket> buckets, bool of_team) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < buckets.size(); ++i)
    if (buckets[i].is_of_team() == of_team) indices.push_back(i);
  return indices;
}

/// Indices of the buckets that one device tunes, those that take longest first, so that no device idles at the end.
std::vector<std::size_t> order_of(std::span<const OpBucket> buckets, TunerState& tuner, bool as_they_come) {
  std::vector<std::size_t> order = indices_of(buckets, false);
  if (as_they_come || tuner.devices.size() == 1) return order;
  State& state = tuner.first();
  answer::ExpectedTimes expected(state.context.info().facts, state.options.regime, state.layers);
  std::vector<double> times;
  for (const OpBucket& each : buckets) times.push_back(tuning_ns(each, state, expected));
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return times[i]; });
  return order;
}

/// Lets an engine that has the bucket ready serve it by its new record.
void adopt_if_ready(State& state, std::string_view op, const answer::Resolution& resolution) {
  plan::OpState& own = state.op_state(state.ops.index_of(op));
  if (own.plans.hot.find(resolution.bucket.edge) != nullptr) adopt(own, resolution);
}

TunedBucket described(const TuneOutcome& outcome, store::Layers& layers) {
  if (!outcome.resolution.is_hit() || outcome.resolution.answers.empty())
    throw Error(ErrorKind::not_tuned, "its new record cannot be read back: " + outcome.resolution.unusable);
  const store::Found<store::Record>& found = *outcome.resolution.record;
  const store::Choice& edge = found.value.at_edge();
  std::set<std::pair<std::string_view, std::string_view>> configs;
  for (const store::Choice& each : found.value.choices)
    if (each.role == store::Role::fastest) configs.emplace(each.implementation, each.config);
  TunedBucket tuned;
  tuned.outcome = outcome.end == TuneOutcome::End::tuned ? TunedBucket::Outcome::tuned : TunedBucket::Outcome::found;
  tuned.origin = outcome.resolution.answers.front().origin;
  tuned.stale = outcome.resolution.is_stale();
  tuned.implementation = edge.implementation;
  tuned.config = edge.config;
  tuned.configs = static_cast<std::int64_t>(configs.size());
  tuned.cost_ns = edge.cost_ns;
  tuned.baseline_ns = found.value.baseline_ns;
  if (tuned.outcome == TunedBucket::Outcome::tuned) tuned.wrong = wrong_throughout(layers.candidates_of(found));
  return tuned;
}

/// Tunes buckets on several devices. Each class of device tunes all of them; devices of one class divide them. Those of
/// ops of a team come first, on the team's device, while the other ranks do the same.
class Job {
 public:
  Job(TunerState& tuner, std::span<const OpBucket> buckets, const TuneChoice& choice)
      : tuner_(tuner),
        buckets_(buckets),
        choice_(choice),
        order_(order_of(buckets, tuner, choice.in_order)),
        next_(tuner.classes(), 0),
        tuned_(tuner.classes() * buckets.size()) {}

  TuneReport run() {
    if (TunerDevice* device = tuner_.of_team()) serve_with_team(*device);
    if (!ended_) serve_all();
    if (failure_) std::rethrow_exception(failure_);
    read_back();
    TuneReport report;
    report.wanted = static_cast<std::int64_t>(tuned_.size());
    report.interrupted = interrupted_;
    for (auto& each : tuned_)
      if (each) report.buckets.push_back(std::move(*each));
    return report;
  }

 private:
  struct Taken {
    std::size_t place = 0;    // in `tuned_`
    std::int64_t number = 0;  // TuneStep::number
  };

  std::optional<Taken> take(std::size_t device_class) {
    const std::lock_guard lock(mutex_);
    std::size_t& next = next_[device_class];
    if (next == order_.size()) return std::nullopt;
    return Taken{device_class * buckets_.size() + order_[next++], ++number_};
  }

  /// Each device on a thread of its own. Those for which the system refuses one follow on this thread.
  void serve_all() {
    std::vector<TunerDevice*> later{tuner_.devices.front().get()};
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < tuner_.devices.size(); ++i) {
      try {
        threads.emplace_back([this, i] { serve(*tuner_.devices[i]); });
      } catch (const std::system_error&) {
        later.push_back(tuner_.devices[i].get());
      }
    }
    for (TunerDevice* each : later) serve(*each);
  }

  void serve(TunerDevice& device) {
    run_guarded(device, [&] {
      while (const auto taken = take(device.device_class)) {
        const std::jthread ahead = compile_next_ahead(device);
        TunedBucket tuned = tune(device, buckets_[taken->place % buckets_.size()], taken->number);
        const std::lock_guard lock(mutex_);
        tuned_[taken->place] = std::move(tuned);
      }
    });
  }

  /// Calls `work` in the device's context. What it throws ends the job.
  template <class Work>
  void run_guarded(TunerDevice& device, Work work) {
    try {
      const cuda::RelaxedCapture relaxed;
      const cuda::Context::Scope scope(device.state->context);
      work();
    } catch (const Error& error) {
      end(device, error.kind() == ErrorKind::interrupted);
    } catch (...) {
      end(device, false);
    }
  }

  void serve_with_team(TunerDevice& device) {
    run_guarded(device, [&] {
      require_same_tunes(*device.state);
      for (const std::size_t i : indices_of(buckets_, true)) {
        stop_together(*device.state);
        tuned_[device.device_class * buckets_.size() + i] = tune(device, buckets_[i], ++number_);
      }
    });
  }

  void require_same_tunes(State& state) const {
    const std::lock_guard lock(state.team->collectives());
    tune::require_same_tunes(state.team->rendezvous(),
                             manifest::buckets_on(buckets_, state.context.info().facts, state.options.regime),
                             choice_.retune);
  }

  /// Collective. Throws Error(interrupted) on all ranks where one was asked to stop.
  void stop_together(State& state) const {
    const std::lock_guard lock(state.team->collectives());
    const team::Patience patience(state.team->rendezvous());
    team::on_all_ranks(state.team->rendezvous(), "going on", [&] {
      const auto& own = state.options.stop_requested;
      if (is_stopped() || (own && own())) throw Error(ErrorKind::interrupted, "the tune was asked to stop");
    });
  }

  /// While one bucket is timed, idle processors compile what the next one's tune begins with. Not with several devices:
  /// which of them takes the next bucket is not known.
  std::jthread compile_next_ahead(TunerDevice& device) {
    const std::lock_guard lock(mutex_);
    const std::size_t next = next_[device.device_class];
    if (tuner_.devices.size() > 1 || next == order_.size()) return {};
    try {
      return std::jthread([this, &device, &bucket = buckets_[order_[next]]] {
        compile_ahead(*device.state, *bucket.op, bucket.bucket, {.retune = choice_.retune, .cubins = &device.cubins});
      });
    } catch (const std::system_error&) {  // no thread is to be had, and none is needed
      return {};
    }
  }

  TunedBucket tune(TunerDevice& device, const OpBucket& bucket, std::int64_t number) {
    State& state = *device.state;
    TunedBucket tuned;
    try {
      TuneAsked asked{.retune = choice_.retune,
                      .cubins = &device.cubins,
                      .stop_requested = [this] { return is_stopped(); },
                      .on_event = [&](const TuneEvent& event) { tell(device, event, number); }};
      const bool is_of_team = bucket.is_of_team();
      // An engine's plan of a team's op stays: another one on this rank alone would fail its launches.
      if (device.is_shared && !is_of_team)
        asked.adopt = [&](const answer::Resolution& found) { adopt_if_ready(state, bucket.op->name, found); };
      tuned = described(
          is_of_team ? agree_on_record(state.op_state(state.ops.index_of(bucket.op->name)), bucket.bucket, true, asked)
                     : tune_once(state, *bucket.op, bucket.bucket, asked),
          state.layers);
    } catch (const Error& error) {
      if (!tune::is_of_one_bucket(error.kind())) throw;
      tuned.reason = error.what();
    }
    tuned.op = bucket.op->name;
    tuned.bucket = bucket.bucket;
    tuned.device_class = state.context.info().facts.device_class();
    return tuned;
  }

  /// Sets `kept`: the overlay's file may have been unwritable, or emptied by another process since.
  void read_back() {
    for (std::size_t place = 0; place < tuned_.size(); ++place) {
      if (!tuned_[place] || tuned_[place]->outcome != TunedBucket::Outcome::tuned) continue;
      State& state = *tuner_.first_of_class[place / buckets_.size()]->state;
      const OpBucket& of = buckets_[place % buckets_.size()];
      tuned_[place]->kept = state.layers.keeps(of.on(state.context.info().facts, state.options.regime).key());
    }
  }

  [[nodiscard]] bool is_stopped() const { return choice_.stop.stop_requested() || ended_; }

  void tell(const TunerDevice& device, const TuneEvent& event, std::int64_t number) {
    if (!choice_.on_step) return;
    const std::lock_guard lock(telling_);
    choice_.on_step({event, device.state->options.device, number, static_cast<std::int64_t>(tuned_.size())});
  }

  /// Ends the work of all devices. Called in an exception handler.
  void end(TunerDevice& device, bool is_interrupt) {
    device.pool.cancel();
    const std::lock_guard lock(mutex_);
    if (!is_interrupt && !failure_) failure_ = std::current_exception();
    interrupted_ = true;
    ended_ = true;
  }

  TunerState& tuner_;
  std::span<const OpBucket> buckets_;
  const TuneChoice& choice_;
  std::vector<std::size_t> order_;
  std::mutex telling_;
  std::mutex mutex_;  // guards the members below
  std::vector<std::size_t> next_;
  std::int64_t number_ = 0;
  std::vector<std::optional<TunedBucket>> tuned_;  // class by class, in the order of `buckets_`
  bool interrupted_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> ended_ = false;
};

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
    add(make_owned<State>(options_for(options, ordinals[i], ordinals.size())), false);
  }
  if (options.team == nullptr) return;
  if (of_team() == nullptr)
    refuse(fmt::format("the team '{}' has this rank on device {}, which is not among the Tuner's; add it",
                       options.team->name(), options.team->device()));
  if (classes() > 1) refuse("the devices are of several classes, and a team's Tuner is for one; make a Tuner for each");
  first_of_class.front() = of_team();  // whose facts have the link, which is in keys of the team's ops
}

TunerState::TunerState(std::shared_ptr<State> engine) {
  cuda::require_not_forked();
  add(std::move(engine), true);
}

void TunerState::add(std::shared_ptr<State> state, bool is_shared) {
  const std::string device_class = state->context.info().facts.device_class();
  TunerDevice& device = *devices.emplace_back(std::make_unique<TunerDevice>(std::move(state), is_shared));
  const auto known = std::ranges::find(first_of_class, device_class, [](const TunerDevice* each) {
    return each->state->context.info().facts.device_class();
  });
  device.device_class = static_cast<std::size_t>(known - first_of_class.begin());
  if (known == first_of_class.end()) first_of_class.push_back(&device);
}

TunerDevice* TunerState::of_team() const noexcept {
  for (const auto& each : devices)
    if (each->state->team != nullptr) return each.get();
  return nullptr;
}

namespace {

/// The distinct buckets of some demands. Throws Error(bad_input) for a demand that is no problem of its op.
std::vector<OpBucket> buckets_of(TunerState& tuner, std::span<const Demand> demands) {
  State& state = tuner.first();
  std::vector<OpBucket> buckets;
  std::set<std::pair<const manifest::Op*, std::string>> seen;
  for (const Demand& each : demands) {
    const manifest::Op& op = state.ops[state.ops.index_of(each.op)];
    manifest::check_problem(op, each.problem);
    const Problem bucket = manifest::bucket_of(op, each.problem);
    if (seen.emplace(&op, manifest::to_string(op, bucket)).second) buckets.push_back({&op, bucket});
  }
  return buckets;
}

void refuse_within_callback(const TunerState& tuner) {
  for (const auto& device : tuner.devices) WithinTune::refuse_within(*device->state, "a Tuner's work");
}

TuneReport tune_all(TunerState& tuner, std::span<const OpBucket> buckets, const TuneChoice& choice) {
  cuda::require_not_forked();
  refuse_within_callback(tuner);
  if (tuner.of_team() == nullptr) tune::require_no_team(buckets);
  const std::lock_guard lock(tuner.working);
  return Job(tuner, buckets, choice).run();
}

/// Tuner::deploy for one class of device; `path` may be empty.
Deployment deploy(TunerState& tuner, std::size_t device_class, std::span<const OpBucket> buckets,
                  const std::filesystem::path& path, const TuneChoice& choice) {
  cuda::require_not_forked();
  refuse_within_callback(tuner);
  const std::lock_guard lock(tuner.working);
  TunerDevice& device = *tuner.first_of_class[device_class];
  State& state = *device.state;
  const WithinTune within(state);
  const cuda::RelaxedCapture relaxed;
  const cuda::Context::Scope scope(state.context);  // where a library is asked what it takes
  const auto& own_stop = state.options.stop_requested;
  return tune::deploy(buckets, path,
                      {.device = state.context.info().facts,
                       .arch = state.arch(),
                       .regime = state.options.regime,
                       .layers = state.layers,
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
  const auto& state = state_->devices.front()->state;
  return Op(std::shared_ptr<plan::OpState>(state, &state->op_state(state->ops.index_of(name))));
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
  return engine::tune_all(*state_, engine::buckets_of(*state_, demands), choice);
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
    if (std::string why = device->state->layers.not_kept(); !why.empty()) return why;
  return {};
}

std::vector<std::string> Tuner::warnings() const {
  std::vector<std::string> all;
  for (const auto& device : state_->devices)
    for (std::string& each : device->state->warnings())
      if (std::ranges::find(all, each) == all.end()) all.push_back(std::move(each));
  return all;
}

}  // namespace kiln
