#include "tune/tuner.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "tune/deploy.hpp"

namespace kiln::tune {
namespace {

struct Entry {
  const spec::Implementation* implementation;
  spec::Config config;
  jit::Specialisation specialisation;
  store::Candidate result;
  Scored scored;
};

/// The baseline first, then each implementation's space in the manifest's order.
std::vector<Entry> candidates_of(const TuneRequest& request) {
  std::vector<Entry> entries;
  const auto add = [&](const spec::Implementation& implementation, const spec::Config& config) {
    const auto frame = spec::make_frame(request.op, &implementation, request.bucket, request.device.facts, config);
    Entry entry{&implementation, config, jit::specialise(request.op, implementation, frame, request.arch), {}, {}};
    entry.result.implementation = implementation.name;
    entry.result.config = spec::to_string(implementation, config);
    entry.result.verdict = store::Verdict::not_timed;
    entries.push_back(std::move(entry));
  };
  const Usable baseline = default_for(request.op, request.bucket, request.device.facts);
  if (baseline.implementation != nullptr) {
    add(*baseline.implementation, baseline.config);
    entries.front().result.baseline = true;
  }
  for (const spec::Implementation& implementation : request.op.implementations) {
    if (spec::why_not_eligible(request.op, implementation, request.bucket, request.device.facts)) continue;
    for (const spec::Config& config :
         spec::search_space(request.op, implementation, request.bucket, request.device.facts))
      if (&implementation != baseline.implementation || config != baseline.config) add(implementation, config);
  }
  return entries;
}

class Session {
 public:
  Session(const TuneRequest& request, Cubins& cubins)
      : request_(request),
        cubins_(cubins),
        bucket_text_(spec::to_string(request.op, request.bucket)),
        entries_(candidates_of(request)) {
    if (entries_.empty())
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{}: no implementation has a legal config for {} on {}", request.op.name, bucket_text_,
                              request.device.facts.device_class()));
  }

  TuneResult run() {
    const auto strategy = exhaustive(entries_.size());
    // Before any candidate: nothing can be verified without the reference.
    for (const jit::Specialisation& needed :
         verification(request_.op, request_.bucket, request_.device.facts, request_.arch))
      cubins_.prefetch(needed);
    for (std::size_t index : strategy->upcoming()) cubins_.prefetch(entries_[index].specialisation);
    announce(TuneEvent::Kind::begun, nullptr);
    prepare_bench();
    while (const auto index = strategy->next()) {
      if (request_.stop_requested && request_.stop_requested())
        throw Error(ErrorKind::interrupted,
                    fmt::format("tuning {} {} was interrupted after {} of {} candidates; finished buckets are kept",
                                request_.op.name, bucket_text_, done_, entries_.size()));
      Entry& entry = entries_[*index];
      try_one(entry);
      ++done_;
      if (entry.scored.cost.median_ns < best_ns_) best_ns_ = entry.scored.cost.median_ns;
      if (entry.result.baseline) baseline_ns_ = entry.result.cost_ns;
      strategy->report(*index, entry.scored.cost);
      announce(TuneEvent::Kind::candidate, &entry);
    }
    return finish();
  }

 private:
  void prepare_bench() {
    const BenchSettings settings{request_.op,     request_.bucket, request_.device,
                                 request_.regime, request_.arch,   request_.limits};
    bench_ = request_.worker != nullptr ? request_.worker->bench(settings, cubins_) : local_bench(settings, cubins_);
  }

  /// Nothing when it does not compile. However it fails, the compiler's memory included, it is this candidate alone that does.
  std::optional<KeyedCubin> compile(Entry& entry) {
    entry.result.verdict = store::Verdict::compile_failed;
    try {
      return cubins_.get(entry.specialisation);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::no_nvrtc || error.kind() == ErrorKind::interrupted) throw;
      entry.result.reason = error.what();
    } catch (const std::exception& error) {
      entry.result.reason = fmt::format("compiling {}: {}", entry.specialisation.label, error.what());
    }
    return std::nullopt;
  }

  void try_one(Entry& entry) {
    const auto cubin = compile(entry);
    if (!cubin) return;
    const TrialResult found = bench_->try_one({*entry.implementation, entry.config, cubin->cubin, best_ns_});
    entry.result.verdict = found.verdict;
    entry.result.reason = found.reason;
    entry.result.registers = entry.scored.registers = found.registers;
    entry.result.spill_bytes = found.spill_bytes;
    entry.scored.cost = found.cost;
    if (found.verdict != store::Verdict::ok) return;
    entry.result.cost_ns = found.cost.median_ns;
    entry.result.low_ns = found.cost.low_ns;
    entry.result.high_ns = found.cost.high_ns;
    entry.result.samples = found.cost.samples;
  }

  TuneResult finish() {
    std::vector<Scored> scored;
    for (const Entry& entry : entries_) scored.push_back(entry.scored);
    const auto chosen = choose(scored);
    if (!chosen) {
      const Entry& first = entries_.front();
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{} {}: none of {} candidates came out right; the first, {} {}: {}", request_.op.name,
                              bucket_text_, entries_.size(), first.result.implementation, first.result.config,
                              first.result.reason));
    }
    Entry& winner = entries_[*chosen];
    TuneResult result{make_record(winner), winner.specialisation, cubins_.get(winner.specialisation)};
    result.record.provenance.compiler = result.cubin.compiler;
    announce(TuneEvent::Kind::finished, &winner);
    return result;
  }

  store::Record make_record(const Entry& winner) const {
    store::Record record;
    record.key = request_.key;
    record.op = request_.op.name;
    record.revision = request_.op.revision;
    record.device_class = request_.device.facts.device_class();
    record.regime = spec::to_string(request_.regime);
    record.bucket = bucket_text_;
    record.implementation = winner.result.implementation;
    record.config = winner.result.config;
    record.cost_ns = winner.result.cost_ns;
    record.low_ns = winner.result.low_ns;
    record.high_ns = winner.result.high_ns;
    record.samples = winner.result.samples;
    record.baseline_ns = baseline_ns_;
    record.source_digest = spec::to_hex(jit::source_digest(winner.specialisation));
    record.provenance = {
        KILN_VERSION,
        request_.device.name,
        request_.device.driver_version,
        {},
        "exhaustive",
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
    for (const Entry& entry : entries_) record.candidates.push_back(entry.result);
    return record;
  }

  void announce(TuneEvent::Kind kind, const Entry* entry) const {
    if (!request_.on_event) return;
    TuneEvent event;
    event.kind = kind;
    event.op = request_.op.name;
    event.bucket = bucket_text_;
    if (entry != nullptr) {
      event.implementation = entry->result.implementation;
      event.config = entry->result.config;
      event.verdict = to_string(entry->result.verdict);
      event.reason = entry->result.reason;
      event.cost_ns = entry->result.cost_ns;
    }
    event.done = done_;
    event.total = static_cast<std::int64_t>(entries_.size());
    event.best_ns = std::isfinite(best_ns_) ? best_ns_ : 0;
    event.baseline_ns = baseline_ns_;
    request_.on_event(event);
  }

  const TuneRequest& request_;
  Cubins& cubins_;
  std::string bucket_text_;
  std::vector<Entry> entries_;
  std::unique_ptr<Bench> bench_;
  std::int64_t done_ = 0;
  double best_ns_ = std::numeric_limits<double>::infinity();
  double baseline_ns_ = 0;
};

}  // namespace

TuneResult tune_bucket(const TuneRequest& request, Cubins& cubins) {
  try {
    return Session(request, cubins).run();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    throw Error(ErrorKind::out_of_memory, fmt::format("tuning {} {}: {}", request.op.name,
                                                      spec::to_string(request.op, request.bucket), error.what()));
  }
}

void publish(const TuneRequest& request, const TuneResult& result, Cubins& cubins) {
  std::vector<store::CubinRow> rows{to_row(result.specialisation, result.cubin)};
  for (const jit::Specialisation& needed :
       deployed(request.op, request.bucket, request.device.facts, request.arch, &result.record)) {
    if (needed.label == result.specialisation.label) continue;
    try {
      rows.push_back(to_row(needed, cubins.get(needed)));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a default that does not compile cannot stand in
    }
  }
  cubins.layers().put_all({&result.record, 1}, rows);
}

}  // namespace kiln::tune
