#include "engine/tune_job.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "answer/expected_times.hpp"
#include "engine/miss_path.hpp"
#include "engine/team/agree.hpp"
#include "engine/tune_once.hpp"
#include "kiln/error.hpp"
#include "manifest/no_signals.hpp"
#include "manifest/text.hpp"
#include "team/exchange.hpp"
#include "tune/team_tunes.hpp"

namespace kiln::engine {
namespace {

using manifest::OpBucket;

/// A rough estimate of a tune in nanoseconds: each candidate is compiled, then launched a few hundred times.
double tuning_ns(const OpBucket& bucket, EngineState& engine, answer::ExpectedTimes& times) {
  const manifest::Bucket at = bucket.on(engine.context.info().facts);
  double candidates = 0;
  for (const manifest::Implementation& each : bucket.op->implementations)
    if (!manifest::why_not_eligible(at, each, at.edge))
      candidates += static_cast<double>(manifest::searched_space(at, each, at.edge).size());
  constexpr double compile_ns = 50e6, launches = 300;
  return candidates * (compile_ns + launches * times.of(*bucket.op, bucket.bucket));
}

/// Indices of the buckets of team ops, or with `of_team` false of all other ops, in the order of `buckets`.
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
  EngineState& engine = tuner.first();
  answer::ExpectedTimes expected(engine.context.info().facts, engine.options.regime, engine.layers);
  std::vector<double> times;
  for (const OpBucket& each : buckets) times.push_back(tuning_ns(each, engine, expected));
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return times[i]; });
  return order;
}

/// Whether the buckets differ in bucketed sizes alone: their tunes try mostly the same kernels.
bool is_of_one_form(const OpBucket& one, const OpBucket& other) {
  if (one.op != other.op || one.bucket.selections != other.bucket.selections) return false;
  for (std::size_t axis = 0; axis < one.op->axes.size(); ++axis)
    if (one.bucket.axes[axis] != other.bucket.axes[axis] && manifest::is_exact(*one.op, axis, one.bucket)) return false;
  return true;
}

/// Lets an engine that has the bucket ready serve it by its new record.
void adopt_if_ready(EngineState& engine, std::string_view op, const answer::Resolution& resolution) {
  plan::OpState& own = engine.op_state(engine.ops.index_of(op));
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
        far_ahead_(tuner.classes(), 0),
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
        const manifest::NoSignals no_signals;
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
        TunedBucket tuned = tune_one(device, buckets_[taken->place % buckets_.size()], taken->number);
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
      const cuda::Context::Scope scope(device.engine->context);
      work();
    } catch (const Error& error) {
      end(device, error.kind() == ErrorKind::interrupted);
    } catch (...) {
      end(device, false);
    }
  }

  void serve_with_team(TunerDevice& device) {
    run_guarded(device, [&] {
      require_same_tunes(*device.engine);
      const KeptTrialWorkers kept(*device.engine);
      for (const std::size_t i : indices_of(buckets_, true)) {
        stop_together(*device.engine);
        tuned_[device.device_class * buckets_.size() + i] = tune_one(device, buckets_[i], ++number_);
      }
    });
  }

  void require_same_tunes(EngineState& engine) const {
    const std::lock_guard lock(engine.team->collectives());
    tune::require_same_tunes(engine.team->rendezvous(),
                             manifest::buckets_on(buckets_, engine.context.info().facts, engine.options.regime),
                             choice_.retune);
  }

  /// Collective. Throws Error(interrupted) on all ranks where one was asked to stop.
  void stop_together(EngineState& engine) const {
    const std::lock_guard lock(engine.team->collectives());
    const team::Patience patience(engine.team->rendezvous());
    team::on_all_ranks(engine.team->rendezvous(), "going on", [&] {
      const auto& own = engine.options.stop_requested;
      if (is_stopped() || (own && own())) throw Error(ErrorKind::interrupted, "the tune was asked to stop");
    });
  }

  /// While one bucket is timed, idle processors compile what the next one's tune begins with, and what that of the next
  /// kernels of another form does: these compiles take longer than a tune. Not with several devices: which of them
  /// takes the next bucket is not known.
  std::jthread compile_next_ahead(TunerDevice& device) {
    const std::lock_guard lock(mutex_);
    if (tuner_.devices.size() > 1) return {};
    std::vector<const OpBucket*> ahead = to_compile_ahead(device.device_class);
    if (ahead.empty()) return {};
    try {
      const manifest::NoSignals no_signals;
      return std::jthread([this, &device, ahead = std::move(ahead)] {
        for (const OpBucket* each : ahead)
          compile_ahead(*device.engine, *each->op, each->bucket, {.retune = choice_.retune, .cubins = &device.cubins});
      });
    } catch (const std::system_error&) {  // no thread is to be had, and none is needed
      return {};
    }
  }

  /// The next bucket, and the first one after it of another form unless it was asked for before. Precondition: the
  /// mutex is held.
  std::vector<const OpBucket*> to_compile_ahead(std::size_t device_class) {
    const std::size_t next = next_[device_class];
    if (next == order_.size()) return {};
    std::vector<const OpBucket*> ahead{&buckets_[order_[next]]};
    std::size_t far = next + 1;
    while (far < order_.size() && is_of_one_form(*ahead[0], buckets_[order_[far]])) ++far;
    if (far < order_.size() && far > far_ahead_[device_class]) {
      far_ahead_[device_class] = far;
      ahead.push_back(&buckets_[order_[far]]);
    }
    return ahead;
  }

  TunedBucket tune_one(TunerDevice& device, const OpBucket& bucket, std::int64_t number) {
    EngineState& engine = *device.engine;
    TunedBucket tuned;
    try {
      TuneAsked asked{.retune = choice_.retune,
                      .cubins = &device.cubins,
                      .stop_requested = [this] { return is_stopped(); },
                      .on_event = [&](const TuneEvent& event) { tell(device, event, number); }};
      const bool is_of_team = bucket.is_of_team();
      // An engine's plan of a team's op stays: another one on this rank alone would fail its launches.
      if (device.is_shared && !is_of_team)
        asked.adopt = [&](const answer::Resolution& found) { adopt_if_ready(engine, bucket.op->name, found); };
      tuned = described(is_of_team ? agree_on_record(engine.op_state(engine.ops.index_of(bucket.op->name)),
                                                     bucket.bucket, true, asked)
                                   : tune_once(engine, *bucket.op, bucket.bucket, asked),
                        engine.layers);
    } catch (const Error& error) {
      if (!tune::is_of_one_bucket(error.kind())) throw;
      tuned.reason = error.what();
    }
    tuned.op = bucket.op->name;
    tuned.bucket = bucket.bucket;
    tuned.device_class = engine.context.info().facts.device_class();
    return tuned;
  }

  /// Sets `kept`: the overlay's file may have been unwritable, or emptied by another process since.
  void read_back() {
    for (const auto& device : tuner_.devices) device->engine->layers.write_queued();
    for (std::size_t place = 0; place < tuned_.size(); ++place) {
      if (!tuned_[place] || tuned_[place]->outcome != TunedBucket::Outcome::tuned) continue;
      EngineState& engine = *tuner_.first_of_class[place / buckets_.size()]->engine;
      const OpBucket& of = buckets_[place % buckets_.size()];
      tuned_[place]->kept = engine.layers.keeps(of.on(engine.context.info().facts, engine.options.regime).key());
    }
  }

  [[nodiscard]] bool is_stopped() const { return choice_.stop.stop_requested() || ended_; }

  void tell(const TunerDevice& device, const TuneEvent& event, std::int64_t number) {
    if (!choice_.on_step) return;
    const std::lock_guard lock(telling_);
    choice_.on_step({event, device.engine->options.device, number, static_cast<std::int64_t>(tuned_.size())});
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
  std::mutex mutex_;                           // guards the members below
  std::vector<std::size_t> next_, far_ahead_;  // by device class: places in `order_`
  std::int64_t number_ = 0;
  std::vector<std::optional<TunedBucket>> tuned_;  // class by class, in the order of `buckets_`
  bool interrupted_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> ended_ = false;
};

}  // namespace

void refuse_within_callback(const TunerState& tuner) {
  for (const auto& device : tuner.devices) WithinTune::refuse_within(*device->engine, "a Tuner's work");
}

TuneReport tune_buckets(TunerState& tuner, std::span<const OpBucket> buckets, const TuneChoice& choice) {
  cuda::require_not_forked();
  refuse_within_callback(tuner);
  if (tuner.of_team() == nullptr) tune::require_no_team(buckets);
  const std::lock_guard lock(tuner.working);
  return Job(tuner, buckets, choice).run();
}

}  // namespace kiln::engine
