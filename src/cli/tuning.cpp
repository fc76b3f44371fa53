#include "cli/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>

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
  return {bucket, Outcome::found, lookup.origin, lookup.stale, lookup.record->value, {}};
}

bool is_enough(const engine::Lookup& lookup, Again again) {
  return lookup.is_hit() && again != Again::all && !(again == Again::stale && lookup.stale);
}

TunedBucket tune(engine::State& state, TuneProgress& progress, const OpBucket& bucket, Again again) {
  engine::Lookup lookup = look_up(state, bucket);
  if (is_enough(lookup, again)) return found(bucket, lookup);
  engine::Lease lease(state.layers, lookup.key, state.holder);
  if (!lease.wait(Interrupt::requested))
    throw Error(ErrorKind::interrupted, "interrupted while another process tunes the same bucket");
  lookup = look_up(state, bucket);  // another process may have finished meanwhile
  if (is_enough(lookup, again)) return found(bucket, lookup);
  const tune::TuneRequest request{.op = *bucket.op,
                                  .bucket = bucket.bucket,
                                  .key = lookup.key,
                                  .device = state.context.info(),
                                  .regime = state.options.regime,
                                  .arch = state.arch,
                                  .search = state.options.search,
                                  .worker = state.worker.get(),
                                  .stop_requested = Interrupt::requested,
                                  .on_event = [&](const TuneEvent& event) { progress.on(event); }};
  tune::TuneResult result = tune::tune_bucket(request, state.cubins);
  tune::publish(request, result, state.cubins);
  result.record.candidates.clear();
  return {bucket, Outcome::tuned, Origin::overlay, false, std::move(result.record), {}};
}

Json json_of(const TunedBucket& bucket, const spec::DeviceFacts& device) {
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
  const Rates rates = rates_of(*bucket.of.op, bucket.of.bucket, device, record.cost_ns);
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

}  // namespace

bool is_of_one_bucket(ErrorKind kind) noexcept {
  return kind == ErrorKind::not_tuned || kind == ErrorKind::compile_failed || kind == ErrorKind::out_of_memory ||
         kind == ErrorKind::bad_manifest;
}

TuningResult tune_buckets(const Globals& globals, engine::State& state, std::span<const OpBucket> buckets,
                          Again again) {
  const Interrupt interrupt;
  const cuda::Context::Scope scope(state.context);
  TuneProgress progress(globals, static_cast<std::int64_t>(buckets.size()));
  TuningResult result;
  for (const OpBucket& bucket : buckets) {
    progress.count_bucket();
    try {
      if (Interrupt::requested()) throw Error(ErrorKind::interrupted, "interrupted");
      result.buckets.push_back(tune(state, progress, bucket, again));
    } catch (const Error& error) {
      progress.clear();
      if (error.kind() == ErrorKind::interrupted) {
        result.interrupted = true;
        state.pool.cancel();
        return result;
      }
      if (!is_of_one_bucket(error.kind())) throw;
      result.buckets.push_back({bucket, Outcome::failed, Origin::overlay, false, {}, error.what()});
    }
  }
  return result;
}

void print_tuned(const Globals& globals, const TuningResult& result, const spec::DeviceFacts& device) {
  Table table({"op", "bucket", "winner", "> time", "> default", "> gain", "> bandwidth", "> throughput", ""});
  for (const TunedBucket& bucket : result.buckets) {
    const std::string text = spec::to_string(*bucket.of.op, bucket.of.bucket);
    if (globals.json) {
      print_json(json_of(bucket, device));
    } else if (bucket.outcome == Outcome::failed) {
      table.row({bucket.of.op->name, text, "failed: " + bucket.reason});
    } else {
      const store::Record& record = bucket.record;
      const Rates rates = rates_of(*bucket.of.op, bucket.of.bucket, device, record.cost_ns);
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
