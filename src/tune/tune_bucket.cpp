#include "tune/tune_bucket.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "answer/machine_code.hpp"
#include "answer/serving.hpp"
#include "kiln/error.hpp"
#include "tune/conclusion.hpp"
#include "tune/intervals.hpp"
#include "tune/recording.hpp"
#include "tune/tolerances.hpp"
#include "tune/trials.hpp"
#include "tune/verification_code.hpp"

namespace kiln::tune {
namespace {

Candidates candidates_for(const TuneRequest& request, Machine& machine) {
  const bool exhaustive = request.search.strategy == Strategy::exhaustive;
  std::vector<store::Record> near;
  if (!exhaustive) near = machine.near_records(neighbours_asked);
  const bool has_communicator = request.team != nullptr && request.team->nccl() != nullptr;
  return candidates_of({request.bucket, request.arch, exhaustive, has_communicator, &machine.libraries()}, near);
}

std::unique_ptr<Search> search_for(const TuneRequest& request, const Candidates& candidates, Machine& machine) {
  if (request.search.strategy == Strategy::exhaustive) return exhaustive(candidates.expectations);
  RacingLimits limits{
      .compiles_at_once = machine.compiles_at_once(), .trials = request.search.trials, .seed = request.search.seed};
  // There a trial takes milliseconds. With the default, two tunes of a product of 2 rows chose configs that differed by
  // 5 % (H200).
  if (candidates.expectations.sizes() == 1) limits.patience *= 2;
  return racing(candidates.expectations, limits);
}

class BucketTune {
 public:
  BucketTune(const TuneRequest& request, Machine& machine)
      : request_(request),
        machine_(machine),
        bucket_text_(manifest::to_string(*request.bucket.op, request.bucket.edge)),
        trials_(request, machine, [this] { check_stop(); }),
        candidates_(candidates_for(request, machine)) {
    if (candidates_.list.empty()) {
      const std::string rules = answer::rules_broken(request.bucket, request.bucket.edge);
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{}: no implementation has a legal config for {} on {}{}{}", request.bucket.op->name,
                              manifest::display_text(*request.bucket.op, request.bucket.edge),
                              request.bucket.device->device_class(), rules.empty() ? "" : ": ", rules));
    }
    search_ = search_for(request, candidates_, machine);
  }

  TuneResult run() {
    prefetch_upcoming();
    announce(TuneEvent::Kind::begun, nullptr);
    trials_.begin();
    trials_.bench().set_sizes(candidates_.sizes.problems);
    while (auto ask = search_->next()) {
      announce_settled(ask->points);
      check_time();
      for (const Point& point : ask->points)
        if (!trials_.is_in(point.candidate)) machine_.prefetch(candidate_at(point.candidate).specialisation);
      prefetch_upcoming();
      std::erase_if(ask->points,
                    [&](const Point& point) { return !trials_.is_in(point.candidate) && !bring_in(point.candidate); });
      if (!ask->points.empty()) take_samples(*ask);
      trials_.drop_if([&](std::size_t candidate) { return !search_->contends(candidate); });
    }
    announce_settled({});
    Measured measured = measured_by_search();
    if (!manifest::sizes_may_differ_between_ranks(*request_.bucket.op, request_.bucket.edge))
      part_intervals(
          {request_, candidates_, trials_, !is_out_of_time(), [this](std::size_t candidate) { return hold(candidate); },
           [this](std::size_t candidate, const std::string& failure) { reject_failed(candidate, failure); }},
          measured);
    announce_settled({});
    trials_.bench().set_sizes(measured.sizes.problems);
    TuneResult result = conclude({request_, candidates_, measured, trials_.bench(), machine_,
                                  [&](const std::function<void()>& work) {
                                    check_stop();
                                    trials_.paced(work);
                                  },
                                  done_});
    announce_finished(result.record);
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Candidate& candidate_at(std::size_t candidate) { return candidates_.list[candidate]; }

  void check_stop() const {
    if (request_.stop_requested && request_.stop_requested())
      throw Error(
          ErrorKind::interrupted,
          fmt::format("tuning {} {} was interrupted after {} of {} candidates; finished buckets are kept",
                      request_.bucket.op->name, manifest::display_text(*request_.bucket.op, request_.bucket.edge),
                      announced_, candidates_.list.size()));
  }

  [[nodiscard]] bool is_out_of_time() const {
    const auto limit = request_.search.time_limit;
    const bool is_out = limit.count() > 0 && Clock::now() - begun_ > limit;
    if (is_out) machine_.note_time_limit();
    return is_out;
  }
  void check_time() {
    if (is_out_of_time()) search_->finish_early();
  }

  void prefetch_upcoming() {
    for (const std::size_t candidate : search_->upcoming()) machine_.prefetch(candidate_at(candidate).specialisation);
  }

  /// Loads and verifies a candidate. Returns false when it was rejected. An exception leaves the candidate as it was.
  bool load(std::size_t candidate) {
    Candidate& of = candidate_at(candidate);
    of.admission = trials_.bring_in(candidate, of);
    if (of.admission.verdict == store::Verdict::ok) return true;
    search_->reject(candidate);
    return false;
  }

  /// Brings in an untried candidate, which is counted and announced. Returns false when it was rejected.
  bool bring_in(std::size_t candidate) {
    if (candidate_at(candidate).admission.verdict != store::Verdict::not_timed)
      return false;  // rejected at another size
    const bool is_right = load(candidate);
    ++done_;
    if (is_right)
      fresh_.push_back(candidate);
    else
      announce(TuneEvent::Kind::candidate, &candidate);
    return is_right;
  }

  /// Loads a candidate that was dropped when it was beaten, or brings in an untried one, within the limit of trials.
  bool hold(std::size_t candidate) {
    if (candidate_at(candidate).admission.verdict == store::Verdict::ok) return load(candidate);
    const std::int64_t most = request_.search.trials;
    return (most == 0 || done_ < most) && bring_in(candidate);
  }

  /// Returns the time of a run as measured, else as expected, else 0.
  [[nodiscard]] double expected_ns(Point point) const {
    if (const Cost& cost = search_->cost(point); !cost.failed()) return cost.median_ns;
    const double expected = candidates_.expectations.expected_ns[point.candidate][point.size];
    return std::isfinite(expected) ? expected : 0;
  }

  void take_samples(const Ask& ask) {
    const std::vector<Samples> samples =
        trials_.sample(ask.points, ask.rounds, [&](Point point) { return expected_ns(point); });
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Point point = ask.points[i];
      if (samples[i].failure.empty())
        search_->report(point, samples[i].ns);
      else
        reject_failed(point.candidate, samples[i].failure);
    }
    const std::size_t edge = candidates_.sizes.problems.size() - 1;
    for (const Point& point : ask.points)
      if (const Cost& cost = search_->cost(point); point.size == edge && !cost.failed())
        best_ns_ = std::min(best_ns_, cost.median_ns);
  }

  [[nodiscard]] Measured measured_by_search() const {
    Measured measured{candidates_.sizes, search_->comparisons(), {}};
    for (std::size_t i = 0; i < candidates_.list.size(); ++i) {
      std::vector<Cost>& costs = measured.costs.emplace_back();
      for (std::size_t size = 0; size < measured.comparisons.size(); ++size) costs.push_back(search_->cost({i, size}));
    }
    return measured;
  }

  void reject_failed(std::size_t candidate, const std::string& failure) {
    candidate_at(candidate).admission.verdict = store::Verdict::launch_failed;
    candidate_at(candidate).admission.reason = failure;
    search_->reject(candidate);
    trials_.forget(candidate);
  }

  /// Announces candidates that the search brought in and does not ask for again now.
  void announce_settled(const std::vector<Point>& asked) {
    std::erase_if(fresh_, [&](std::size_t candidate) {
      if (std::ranges::find(asked, candidate, &Point::candidate) != asked.end()) return false;
      announce(TuneEvent::Kind::candidate, &candidate);
      return true;
    });
  }

  [[nodiscard]] TuneEvent event_of(TuneEvent::Kind kind) const {
    TuneEvent event;
    event.kind = kind;
    event.op = request_.bucket.op->name;
    event.bucket = bucket_text_;
    event.done = announced_;
    event.total = static_cast<std::int64_t>(candidates_.list.size());
    event.best_ns = std::isfinite(best_ns_) ? best_ns_ : 0;
    if (candidates_.has_baseline)
      if (const Cost& cost = search_->cost({0, candidates_.sizes.problems.size() - 1}); !cost.failed())
        event.baseline_ns = cost.median_ns;
    return event;
  }

  /// Reports a candidate's time at the largest size at which it was timed.
  void announce(TuneEvent::Kind kind, const std::size_t* candidate) {
    if (kind == TuneEvent::Kind::candidate) ++announced_;
    if (!request_.on_event) return;
    TuneEvent event = event_of(kind);
    std::string config;  // the event holds views
    if (candidate != nullptr) {
      const Candidate& of = candidate_at(*candidate);
      config = manifest::to_string(*of.implementation, of.config);
      event.implementation = of.implementation->name;
      event.config = config;
      event.verdict = to_string(of.admission.verdict);
      event.reason = of.admission.reason;
      for (std::size_t size = candidates_.sizes.problems.size(); size-- > 0 && event.cost_ns == 0;)
        if (const Cost& cost = search_->cost({*candidate, size});
            of.admission.verdict == store::Verdict::ok && !cost.failed())
          event.cost_ns = cost.median_ns;
    }
    request_.on_event(event);
  }

  void announce_finished(const store::Record& record) {
    if (!request_.on_event) return;
    TuneEvent event = event_of(TuneEvent::Kind::finished);
    const store::Choice& choice = record.at_edge();
    event.implementation = choice.implementation;
    event.config = choice.config;
    event.verdict = to_string(store::Verdict::ok);
    event.cost_ns = choice.cost_ns;
    request_.on_event(event);
  }

  const TuneRequest& request_;
  Machine& machine_;
  std::string bucket_text_;
  Clock::time_point begun_ = Clock::now();
  Trials trials_;
  Candidates candidates_;
  std::unique_ptr<Search> search_;
  std::vector<std::size_t> fresh_;         // brought in and not yet announced
  std::int64_t done_ = 0, announced_ = 0;  // candidates brought in, and announced
  double best_ns_ = std::numeric_limits<double>::infinity();
};

/// Leaves out a default that does not compile.
void add_row(std::vector<store::CubinRow>& rows, const jit::Specialisation& needed, answer::Cubins& cubins) {
  try {
    rows.push_back(answer::to_row(needed, cubins.get(needed)));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace

TuneResult tune_bucket(const TuneRequest& request, Machine& machine) {
  try {
    return BucketTune(request, machine).run();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    throw Error(ErrorKind::out_of_memory,
                fmt::format("tuning {} {}: {}", request.bucket.op->name,
                            manifest::display_text(*request.bucket.op, request.bucket.edge), error.what()));
  }
}

TuneResult tune_bucket(const TuneRequest& request, answer::Cubins& cubins) {
  const std::unique_ptr<Machine> here = this_machine(request, cubins);
  if (request.search.samples.empty() || request.team != nullptr) return tune_bucket(request, *here);
  const team::Descriptor samples = open_samples(request.search.samples);  // a wrong name must not cost a tune
  Recording recording(request, *here);
  TuneResult result = tune_bucket(request, recording);
  if (const std::string why = recording.append_to(samples, result.record); !why.empty())
    result.warning = fmt::format("the samples of this tune are not in {}: {}", request.search.samples.string(), why);
  return result;
}

bool is_of_one_bucket(ErrorKind kind) noexcept {
  return kind == ErrorKind::not_tuned || kind == ErrorKind::compile_failed || kind == ErrorKind::out_of_memory ||
         kind == ErrorKind::bad_manifest;
}

void compile_ahead(const TuneRequest& request, answer::Cubins& cubins) {
  for (const jit::Specialisation& needed : verification(request.bucket, request.arch))
    cubins.prefetch(needed, jit::Urgency::ahead);
  const std::unique_ptr<Machine> here = this_machine(request, cubins);
  const Candidates candidates = candidates_for(request, *here);
  if (candidates.list.empty()) return;
  for (const std::size_t first : search_for(request, candidates, *here)->upcoming())
    cubins.prefetch(candidates.list[first].specialisation, jit::Urgency::ahead);
}

std::vector<store::CubinRow> publish(const TuneRequest& request, const TuneResult& result, answer::Cubins& cubins) {
  std::vector<store::CubinRow> rows;
  std::set<std::string> labels;
  for (const CompiledKernel& each : result.kernels)
    if (labels.insert(each.specialisation.label).second)
      rows.push_back(answer::to_row(each.specialisation, each.cubin));
  for (const jit::Specialisation& needed :
       answer::code_needed(answer::resolve_with(request.bucket, result.record), request.arch))
    if (labels.insert(needed.label).second) add_row(rows, needed, cubins);
  cubins.layers().put_all({&result.record, 1}, rows);
  return rows;
}

}  // namespace kiln::tune
