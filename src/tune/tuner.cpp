#include "tune/tuner.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "tune/deploy.hpp"
#include "tune/verification_case.hpp"

namespace kiln::tune {
namespace {

struct Trial {
  const spec::Implementation* implementation;
  spec::Config config;
  std::vector<std::int64_t> frame;
  jit::Specialisation specialisation;
  store::Candidate result;
  Scored scored;
};

/// The baseline first, then each implementation's space in the manifest's order.
std::vector<Trial> candidates_of(const TuneRequest& request) {
  std::vector<Trial> trials;
  const auto add = [&](const spec::Implementation& implementation, const spec::Config& config) {
    Trial trial{&implementation,
                config,
                spec::make_frame(request.op, &implementation, request.bucket, request.device.facts, config),
                {},
                {},
                {}};
    trial.specialisation = jit::specialise(request.op, implementation, trial.frame, request.arch);
    trial.result.implementation = implementation.name;
    trial.result.config = spec::to_string(implementation, config);
    trial.result.verdict = store::Verdict::not_timed;
    trials.push_back(std::move(trial));
  };
  const Usable baseline = default_for(request.op, request.bucket, request.device.facts);
  if (baseline.implementation != nullptr) {
    add(*baseline.implementation, baseline.config);
    trials.front().result.baseline = true;
  }
  for (const spec::Implementation& implementation : request.op.implementations) {
    if (spec::why_not_eligible(request.op, implementation, request.bucket, request.device.facts)) continue;
    for (const spec::Config& config :
         spec::search_space(request.op, implementation, request.bucket, request.device.facts))
      if (&implementation != baseline.implementation || config != baseline.config) add(implementation, config);
  }
  return trials;
}

class Session {
 public:
  Session(const TuneRequest& request, Cubins& cubins)
      : request_(request),
        cubins_(cubins),
        bucket_text_(spec::to_string(request.op, request.bucket)),
        trials_(candidates_of(request)),
        stopwatch_(request.device.facts, request.regime) {
    if (trials_.empty())
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{}: no implementation has a legal config for {} on {}", request.op.name, bucket_text_,
                              request.device.facts.device_class()));
  }

  TuneResult run() {
    const auto strategy = exhaustive(trials_.size());
    for (std::size_t index : strategy->upcoming()) cubins_.prefetch(trials_[index].specialisation);
    announce(TuneEvent::Kind::begun, nullptr);
    prepare_cases();
    while (const auto index = strategy->next()) {
      if (request_.stop_requested && request_.stop_requested())
        throw Error(ErrorKind::interrupted,
                    fmt::format("tuning {} {} was interrupted after {} of {} candidates; finished buckets are kept",
                                request_.op.name, bucket_text_, done_, trials_.size()));
      Trial& trial = trials_[*index];
      try_one(trial);
      ++done_;
      if (trial.scored.cost.median_ns < best_ns_) best_ns_ = trial.scored.cost.median_ns;
      if (trial.result.baseline) baseline_ns_ = trial.result.cost_ns;
      strategy->report(*index, trial.scored.cost);
      announce(TuneEvent::Kind::candidate, &trial);
    }
    return finish();
  }

 private:
  void prepare_cases() {
    const Problem low = spec::low_corner(request_.op, request_.bucket);
    const auto make = [&](const Problem& problem, std::uint64_t seed) {
      cases_.emplace_back(request_.op, problem, request_.device.facts, request_.arch, cubins_, seed, stream_.handle());
    };
    const auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    if (!(low == request_.bucket)) make(low, seed);
    make(request_.bucket, seed + 1);
  }

  /// Nothing when it does not compile. However it fails, the compiler's memory included, it is this candidate alone that does.
  std::optional<KeyedCubin> compile(Trial& trial) {
    trial.result.verdict = store::Verdict::compile_failed;
    try {
      return cubins_.get(trial.specialisation);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::no_nvrtc || error.kind() == ErrorKind::interrupted) throw;
      trial.result.reason = error.what();
    } catch (const std::exception& error) {
      trial.result.reason = fmt::format("compiling {}: {}", trial.specialisation.label, error.what());
    }
    return std::nullopt;
  }

  void try_one(Trial& trial) {
    const auto cubin = compile(trial);
    if (!cubin) return;
    try {
      const jit::Executable executable(request_.op, *trial.implementation, trial.frame, cubin->cubin);
      const jit::Resources resources = executable.resources();
      trial.result.registers = trial.scored.registers = resources.registers;
      trial.result.spill_bytes = resources.spill_bytes;
      if (!is_right(trial, executable)) return;
      VerificationCase& measured = cases_.back();
      trial.scored.cost = stopwatch_.measure([&](CUstream stream) { measured.launch(executable, stream); },
                                             stream_.handle(), request_.limits, best_ns_);
      trial.result.verdict = store::Verdict::ok;
      trial.result.cost_ns = trial.scored.cost.median_ns;
      trial.result.low_ns = trial.scored.cost.low_ns;
      trial.result.high_ns = trial.scored.cost.high_ns;
      trial.result.samples = trial.scored.cost.samples;
    } catch (const Error& error) {
      reject(trial, error);
    }
  }

  /// A candidate that does not load rejects itself. A launch that broke the context ends the tune: nothing after it could be trusted.
  void reject(Trial& trial, const Error& error) {
    trial.scored.cost = {};
    trial.result.reason = error.what();
    switch (error.kind()) {
      case ErrorKind::bad_manifest:
      case ErrorKind::bad_input: trial.result.verdict = store::Verdict::launch_failed; return;
      case ErrorKind::driver_failed:
        trial.result.verdict = store::Verdict::launch_failed;
        if (context_lives()) return;
        throw Error(ErrorKind::driver_failed,
                    fmt::format("candidate {} {} of {} broke the device context: {}", trial.result.implementation,
                                trial.result.config, request_.op.name, error.what()));
      default: throw error;
    }
  }

  [[nodiscard]] bool context_lives() const {
    try {
      stream_.synchronize();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  bool is_right(Trial& trial, const jit::Executable& executable) {
    for (VerificationCase& each : cases_) {
      const Check check = each.verify(executable, stream_.handle());
      if (check.right) continue;
      trial.result.verdict = store::Verdict::wrong_result;
      trial.result.reason = fmt::format("at {}: {}", spec::to_string(request_.op, each.problem()), check.reason);
      return false;
    }
    return true;
  }

  TuneResult finish() {
    std::vector<Scored> scored;
    for (const Trial& trial : trials_) scored.push_back(trial.scored);
    const auto chosen = choose(scored);
    if (!chosen) {
      const Trial& first = trials_.front();
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{} {}: none of {} candidates came out right; the first, {} {}: {}", request_.op.name,
                              bucket_text_, trials_.size(), first.result.implementation, first.result.config,
                              first.result.reason));
    }
    Trial& winner = trials_[*chosen];
    TuneResult result{make_record(winner), winner.specialisation, cubins_.get(winner.specialisation)};
    result.record.provenance.compiler = result.cubin.compiler;
    announce(TuneEvent::Kind::finished, &winner);
    return result;
  }

  store::Record make_record(const Trial& winner) const {
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
    for (const Trial& trial : trials_) record.candidates.push_back(trial.result);
    return record;
  }

  void announce(TuneEvent::Kind kind, const Trial* trial) const {
    if (!request_.on_event) return;
    TuneEvent event;
    event.kind = kind;
    event.op = request_.op.name;
    event.bucket = bucket_text_;
    if (trial != nullptr) {
      event.implementation = trial->result.implementation;
      event.config = trial->result.config;
      event.verdict = to_string(trial->result.verdict);
      event.reason = trial->result.reason;
      event.cost_ns = trial->result.cost_ns;
    }
    event.done = done_;
    event.total = static_cast<std::int64_t>(trials_.size());
    event.best_ns = std::isfinite(best_ns_) ? best_ns_ : 0;
    event.baseline_ns = baseline_ns_;
    request_.on_event(event);
  }

  const TuneRequest& request_;
  Cubins& cubins_;
  std::string bucket_text_;
  std::vector<Trial> trials_;
  Stopwatch stopwatch_;
  cuda::Stream stream_;
  std::vector<VerificationCase> cases_;  // the last is the upper edge
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
