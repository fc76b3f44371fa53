#include "cli/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/cost.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/tune_progress.hpp"
#include "cli/units.hpp"
#include "engine/lease.hpp"
#include "engine/lookup.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

namespace kiln::cli {
namespace {

engine::Lookup look_up(engine::State& state, const OpBucket& bucket) {
  return engine::look_up(*bucket.op, bucket.bucket, state.context.info().facts, state.options.regime, state.layers,
                         false);
}

TunedBucket found(const OpBucket& bucket, const engine::Lookup& lookup) {
  return {bucket, Outcome::found, lookup.origin, lookup.stale, lookup.record->value, {}, {}};
}

bool is_enough(const engine::Lookup& lookup, Again again) {
  return lookup.is_hit() && again != Again::all && !(again == Again::stale && lookup.is_stale_in_part());
}

TunedBucket tune(engine::State& state, TuneProgress& progress, const OpBucket& bucket, const TuningChoice& choice,
                 const std::function<bool()>& stop) {
  engine::Lookup lookup = look_up(state, bucket);
  if (is_enough(lookup, choice.again)) return found(bucket, lookup);
  engine::Lease lease(state.layers, lookup.key, state.holder);
  if (!lease.wait(stop)) throw Error(ErrorKind::interrupted, "interrupted while another process tunes the same bucket");
  lookup = look_up(state, bucket);  // another process may have finished meanwhile
  if (is_enough(lookup, choice.again)) return found(bucket, lookup);
  tune::TuneRequest request = state.tune_request(*bucket.op, bucket.bucket);
  request.stop_requested = stop;
  request.on_event = [&](const TuneEvent& event) { progress.on(event, state.options.device); };
  if (choice.lowest) request.lowest = choice.lowest(bucket);
  tune::TuneResult result = tune::tune_bucket(request, state.cubins);
  tune::publish(request, result, state.cubins);
  result.record.candidates.clear();
  return {bucket, Outcome::tuned, Origin::overlay, false, std::move(result.record), {}, {}};
}

Json json_of(const TunedBucket& bucket) {
  Json json{{"event", "result"},
            {"op", bucket.of.op->name},
            {"bucket", spec::to_string(*bucket.of.op, bucket.of.bucket)},
            {"outcome", bucket.outcome == Outcome::tuned   ? "tuned"
                        : bucket.outcome == Outcome::found ? "found"
                                                           : "failed"}};
  if (bucket.outcome == Outcome::failed) {
    json["reason"] = bucket.reason;
    return json;
  }
  const store::Record& record = bucket.record;
  const Rates rates = rates_of(*bucket.of.op, bucket.of.bucket, bucket.device, record.cost_ns);
  json.update({{"origin", to_string(bucket.origin)},
               {"stale", bucket.stale},
               {"implementation", record.implementation},
               {"config", record.config},
               {"cost_ns", record.cost_ns},
               {"baseline_ns", record.baseline_ns},
               {"bytes_per_second", rates.bytes_per_second},
               {"flops_per_second", rates.flops_per_second}});
  return json;
}

std::string gain(const store::Record& record) {
  return record.baseline_ns > 0 ? format_ratio(record.baseline_ns / record.cost_ns) : "-";
}

/// Buckets that several devices share out among themselves: each device class goes through all of them.
class Job {
 public:
  Job(const Globals& globals, const TuningDevices& devices, std::span<const OpBucket> buckets,
      const TuningChoice& choice)
      : devices_(devices),
        buckets_(buckets),
        choice_(choice),
        next_(devices.classes(), 0),
        tuned_(devices.classes() * buckets.size()),
        progress_(globals, static_cast<std::int64_t>(tuned_.size()), devices.ordinals()) {}

  void run() {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < devices_.size(); ++i) others.emplace_back([this, i] { serve(i); });
    serve(0);
  }

  TuningResult result() {
    if (failure_) std::rethrow_exception(failure_);
    TuningResult result;
    result.interrupted = interrupted_;
    for (auto& each : tuned_)
      if (each) result.buckets.push_back(std::move(*each));
    return result;
  }

 private:
  /// The place in `tuned_` of what this device is to do next.
  std::optional<std::size_t> take(std::size_t device) {
    const std::lock_guard lock(mutex_);
    std::size_t& next = next_[devices_.class_of(device)];
    if (next == buckets_.size()) return std::nullopt;
    return devices_.class_of(device) * buckets_.size() + next++;
  }

  void serve(std::size_t device) {
    engine::State& state = devices_.state(device);
    try {
      const cuda::Context::Scope scope(state.context);
      while (const auto place = take(device)) {
        progress_.count_bucket(state.options.device);
        TunedBucket tuned = tune_one(state, buckets_[*place % buckets_.size()]);
        const std::lock_guard lock(mutex_);
        tuned_[*place] = std::move(tuned);
      }
    } catch (const Error& error) {
      end(state, error.kind() == ErrorKind::interrupted);
    } catch (...) {
      end(state, false);
    }
  }

  TunedBucket tune_one(engine::State& state, const OpBucket& bucket) {
    const auto stop = [this] { return Interrupt::requested() || stopped_; };
    TunedBucket tuned;
    try {
      if (stop()) throw Error(ErrorKind::interrupted, "interrupted");
      tuned = tune(state, progress_, bucket, choice_, stop);
    } catch (const Error& error) {
      progress_.clear();
      if (!is_of_one_bucket(error.kind())) throw;
      tuned = {bucket, Outcome::failed, Origin::overlay, false, {}, error.what(), {}};
    }
    tuned.device = state.context.info().facts;
    return tuned;
  }

  /// In a handler: what ends one device's work ends that of all.
  void end(engine::State& state, bool interrupted) {
    progress_.clear();
    state.pool.cancel();
    const std::lock_guard lock(mutex_);
    if (interrupted)
      interrupted_ = true;
    else if (!failure_)
      failure_ = std::current_exception();
    stopped_ = true;
  }

  const TuningDevices& devices_;
  std::span<const OpBucket> buckets_;
  TuningChoice choice_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::size_t> next_;
  std::vector<std::optional<TunedBucket>> tuned_;  // class by class
  bool interrupted_ = false;
  std::exception_ptr failure_;
  std::atomic<bool> stopped_ = false;
  TuneProgress progress_;
};

}  // namespace

bool is_of_one_bucket(ErrorKind kind) noexcept {
  return kind == ErrorKind::not_tuned || kind == ErrorKind::compile_failed || kind == ErrorKind::out_of_memory ||
         kind == ErrorKind::bad_manifest;
}

TuningResult tune_buckets(const Globals& globals, const TuningDevices& devices, std::span<const OpBucket> buckets,
                          const TuningChoice& choice) {
  const Interrupt interrupt;
  Job job(globals, devices, buckets, choice);
  job.run();
  return job.result();
}

void print_tuned(const Globals& globals, const TuningResult& result) {
  Table table({"op", "bucket", "winner", "> time", "> default", "> gain", "> bandwidth", "> throughput", ""});
  for (const TunedBucket& bucket : result.buckets) {
    const std::string text = spec::to_string(*bucket.of.op, bucket.of.bucket);
    if (globals.json) {
      print_json(json_of(bucket));
    } else if (bucket.outcome == Outcome::failed) {
      table.row({bucket.of.op->name, text, "failed: " + bucket.reason});
    } else {
      const store::Record& record = bucket.record;
      const Rates rates = rates_of(*bucket.of.op, bucket.of.bucket, bucket.device, record.cost_ns);
      const std::string from = bucket.outcome == Outcome::tuned ? "tuned now"
                                                                : fmt::format("from the {}{}", to_string(bucket.origin),
                                                                              bucket.stale ? ", stale" : "");
      table.row({bucket.of.op->name, text, record.implementation + " " + record.config, format_time(record.cost_ns),
                 format_time(record.baseline_ns), gain(record), format_bandwidth(rates.bytes_per_second),
                 format_throughput(rates.flops_per_second), from});
    }
  }
  if (globals.json) return;
  print(table.text());
  const auto stale = std::count_if(result.buckets.begin(), result.buckets.end(),
                                   [](const TunedBucket& bucket) { return bucket.stale; });
  if (stale > 0 && !globals.quiet)
    note(fmt::format(
        "{} of these records are stale: tuned from other sources than the present ones; they serve, and kiln tune --stale tunes them again",
        stale));
}

}  // namespace kiln::cli
