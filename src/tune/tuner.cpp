#include "tune/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "kiln/error.hpp"
#include "tune/conclusion.hpp"
#include "tune/deploy.hpp"
#include "tune/inner_sizes.hpp"
#include "tune/model.hpp"
#include "tune/neighbours.hpp"
#include "tune/switches.hpp"

namespace kiln::tune {
namespace {

constexpr double longest_round_ns = 10e6;  // expected time of a round of points that are sampled together
constexpr std::chrono::milliseconds idle_after{20};
constexpr std::int64_t warm_runs = 2;
constexpr double long_ns = 3e5;                          // of a launch: above, few_probes are taken
constexpr std::int64_t few_probes = 3, many_probes = 7;  // samples of each of Switches' probes
constexpr double inner_budget_ns = 200e6;                // for samples at inner sizes
constexpr double inner_candidates = 5;                   // of a size, about
constexpr std::size_t least_inner_sizes = 2, most_inner_sizes = 12;
constexpr std::size_t neighbours_asked = 8;  // records whose measurements correct the model

Candidates candidates_for(const TuneRequest& request, Cubins& cubins) {
  const bool exhaustive = request.search.strategy == Strategy::exhaustive;
  std::vector<store::Record> near;
  if (!exhaustive)
    near =
        neighbours(cubins.layers(), request.op, request.bucket, request.device.facts, request.regime, neighbours_asked);
  return candidates_of({request.op, request.bucket, request.device.facts, request.regime, request.arch, exhaustive},
                       near);
}

std::unique_ptr<Search> search_for(const TuneRequest& request, const Candidates& candidates, const Cubins& cubins) {
  if (request.search.strategy == Strategy::exhaustive) return exhaustive(candidates.expectations);
  return racing(
      candidates.expectations,
      {.compiles_at_once = cubins.compiles_at_once(), .trials = request.search.trials, .seed = request.search.seed});
}

class Session {
 public:
  Session(const TuneRequest& request, Cubins& cubins)
      : request_(request),
        cubins_(cubins),
        bucket_text_(manifest::to_string(request.op, request.bucket)),
        preparing_(begin_bench()),
        candidates_(candidates_for(request, cubins)) {
    if (candidates_.entries.empty())
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{}: no implementation has a legal config for {} on {}", request.op.name,
                              manifest::display_text(request.op, request.bucket), request.device.facts.device_class()));
    search_ = search_for(request, candidates_, cubins);
  }

  TuneResult run() {
    prefetch_upcoming();
    announce(TuneEvent::Kind::begun, nullptr);
    prepare_bench();
    while (auto ask = search_->next()) {
      announce_settled(ask->points);
      check_time();
      for (const Point& point : ask->points)
        if (!is_in(point.candidate)) cubins_.prefetch(entry(point.candidate).specialisation);
      prefetch_upcoming();
      std::erase_if(ask->points,
                    [&](const Point& point) { return !is_in(point.candidate) && !bring_in(point.candidate); });
      if (!ask->points.empty()) take_samples(*ask);
      drop_eliminated();
    }
    announce_settled({});
    const Measured measured = part_intervals();
    bench_->set_lengths(measured.lengths.problems);
    TuneResult result = conclude({request_, candidates_, measured, *bench_, cubins_,
                                  [&](const std::function<void()>& work) {
                                    check_stop();
                                    paced(work);
                                  },
                                  done_});
    announce_finished(result.record);
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Entry& entry(std::size_t candidate) { return candidates_.entries[candidate]; }

  /// Compiles the reference first, since every verification needs it. A worker prepares while candidates are gathered.
  std::future<std::unique_ptr<Bench>> begin_bench() {
    for (const jit::Specialisation& needed :
         verification(request_.op, request_.bucket, request_.device.facts, request_.arch))
      cubins_.prefetch(needed);
    const auto begin = [this] {
      const BenchSettings settings{request_.op, request_.bucket, request_.device, request_.regime, request_.arch};
      return request_.worker != nullptr ? request_.worker->bench(settings, cubins_) : local_bench(settings, cubins_);
    };
    return std::async(request_.worker != nullptr ? std::launch::async : std::launch::deferred, begin);
  }

  void prepare_bench() {
    bench_ = preparing_.get();
    bench_->set_lengths(candidates_.lengths.problems);
    // A worker's start and its compiles do not use the device, and are not counted.
    if (request_.pace) request_.pace(bench_->prepared_ns());
  }

  void check_stop() const {
    if (request_.stop_requested && request_.stop_requested())
      throw Error(ErrorKind::interrupted,
                  fmt::format("tuning {} {} was interrupted after {} of {} candidates; finished buckets are kept",
                              request_.op.name, manifest::display_text(request_.op, request_.bucket), announced_,
                              candidates_.entries.size()));
  }

  void check_time() {
    const auto limit = request_.search.time_limit;
    if (limit.count() > 0 && Clock::now() - begun_ > limit) search_->finish_early();
  }

  void prefetch_upcoming() {
    for (const std::size_t candidate : search_->upcoming()) cubins_.prefetch(entry(candidate).specialisation);
  }

  template <class Work>
  void paced(const Work& work) {
    const auto begun = Clock::now();
    work();
    if (request_.pace) request_.pace(std::chrono::duration<double, std::nano>(Clock::now() - begun).count());
  }

  [[nodiscard]] bool is_in(std::size_t candidate) const { return loaded_.contains(candidate); }

  /// Returns nothing when the candidate does not compile. Any failure but a missing NVRTC or an interruption rejects this candidate alone.
  std::optional<KeyedCubin> compile(Entry& entry) {
    entry.admission.verdict = store::Verdict::compile_failed;
    try {
      return cubins_.get(entry.specialisation);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::no_nvrtc || error.kind() == ErrorKind::interrupted) throw;
      entry.admission.reason = error.what();
    } catch (const std::exception& error) {
      entry.admission.reason = fmt::format("compiling {}: {}", entry.specialisation.label, error.what());
    }
    return std::nullopt;
  }

  /// Compiles, loads and verifies a candidate. Returns false when it was rejected.
  bool bring_in(std::size_t candidate) {
    Entry& entry = this->entry(candidate);
    if (entry.admission.verdict != store::Verdict::not_timed) return false;  // rejected at another length of this ask
    check_stop();
    ++done_;
    if (const auto cubin = compile(entry)) {
      paced([&] {
        entry.admission = bench_->admit(candidate, {*entry.implementation, entry.config, cubin->cubin, entry.at});
      });
    }
    if (entry.admission.verdict == store::Verdict::ok) {
      loaded_.insert(candidate);
      fresh_.push_back(candidate);
      return true;
    }
    search_->reject(candidate);
    announce(TuneEvent::Kind::candidate, &candidate);
    return false;
  }

  /// Takes all rounds, in batches between which the device rests, until one fails. The points of one length are sampled in the same batch.
  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds,
                              const std::function<double(Point)>& expected) {
    std::vector<Samples> all;
    warm_up(points.front());
    for (std::size_t begin = 0; begin < points.size();) {
      std::size_t end = begin;
      double round_ns = 0;
      while (end < points.size() && (round_ns < longest_round_ns || points[end].length == points[end - 1].length))
        round_ns += expected(points[end++]);
      for (Samples& each : sample_some(points.subspan(begin, end - begin), rounds, round_ns))
        all.push_back(std::move(each));
      begin = end;
    }
    sampled_ = Clock::now();
    return all;
  }

  std::vector<Samples> sample_some(std::span<const Point> points, std::int64_t rounds, double round_ns) {
    std::vector<Samples> all(points.size());
    in_batches(rounds, round_ns, [&](std::int64_t now) {
      check_stop();
      std::vector<Samples> some;
      paced([&] { some = bench_->sample(points, now); });
      BatchTime busy;
      bool failed = false;
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].ns.insert(all[i].ns.end(), some[i].ns.begin(), some[i].ns.end());
        all[i].failure = some[i].failure;
        failed = failed || !some[i].failure.empty();
        busy.add(some[i].ns);
      }
      return failed ? BatchTime() : busy;
    });
    return all;
  }

  /// Returns the time of a run as measured, else as expected, else 0.
  [[nodiscard]] double expected_ns(Point point) const {
    if (const Cost& cost = search_->cost(point); !cost.failed()) return cost.median_ns;
    const double expected = candidates_.expectations.expected_ns[point.candidate][point.length];
    return std::isfinite(expected) ? expected : 0;
  }

  /// Runs a point unmeasured if the device was idle, since its first runs are slow.
  void warm_up(Point point) {
    if (Clock::now() - sampled_ > idle_after) (void)bench_->sample({&point, 1}, warm_runs);
  }

  void take_samples(const Ask& ask) {
    const std::vector<Samples> samples =
        sample(ask.points, ask.rounds, [&](Point point) { return expected_ns(point); });
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Point point = ask.points[i];
      if (samples[i].failure.empty())
        search_->report(point, samples[i].ns);
      else
        reject_failed(point.candidate, samples[i].failure);
    }
    const std::size_t edge = candidates_.lengths.problems.size() - 1;
    for (const Point& point : ask.points)
      if (const Cost& cost = search_->cost(point); point.length == edge && !cost.failed())
        best_ns_ = std::min(best_ns_, cost.median_ns);
  }

  /// Returns what the search measured. On a single open axis, adds lengths at sizes inside an interval where another candidate is the fastest.
  Measured part_intervals() {
    Measured measured{candidates_.lengths, search_->comparisons(), {}};
    const std::size_t searched = measured.comparisons.size();
    for (std::size_t i = 0; i < candidates_.entries.size(); ++i) {
      std::vector<Cost>& costs = measured.costs.emplace_back();
      for (std::size_t length = 0; length < searched; ++length) costs.push_back(search_->cost({i, length}));
    }
    if (measured.lengths.axes.size() != 1 || searched < 2 || measured.comparisons.back().empty()) return measured;
    longest_ns_ = search_->cost({measured.comparisons.back().front().candidate, searched - 1}).median_ns;
    part_at_inner_sizes(measured);
    part_at_switches(measured);
    return measured;
  }

  [[nodiscard]] std::size_t open_axis() const { return candidates_.lengths.axes.front(); }
  [[nodiscard]] std::int64_t low_size() const {
    return manifest::low_corner(request_.op, request_.bucket).axes[open_axis()];
  }
  [[nodiscard]] std::int64_t probe_rounds() const { return longest_ns_ > long_ns ? few_probes : many_probes; }

  /// Returns the model's time, infinity where the candidate is not legal.
  [[nodiscard]] double estimate_at(std::size_t candidate, std::int64_t size) const {
    const Entry& entry = candidates_.entries[candidate];
    Problem at = request_.bucket;
    at.axes[open_axis()] = size;
    if (manifest::broken_constraint(request_.op, *entry.implementation, at, request_.device.facts, entry.config))
      return std::numeric_limits<double>::infinity();
    return estimate(request_.op, *entry.implementation, at, request_.device.facts, entry.config, request_.regime).ns;
  }

  /// Loads a candidate again that was dropped when it was beaten, or brings in one that was not tried.
  bool hold(std::size_t candidate) {
    if (is_in(candidate)) return true;
    Entry& entry = this->entry(candidate);
    if (entry.admission.verdict == store::Verdict::ok) entry.admission.verdict = store::Verdict::not_timed;
    return bring_in(candidate);
  }

  void part_at_inner_sizes(Measured& measured) {
    const std::vector<std::int64_t> ends = measured.lengths.ends.front();
    const std::vector<std::size_t>& libraries = candidates_.expectations.of_libraries;
    const double size_ns = inner_candidates * static_cast<double>(probe_rounds()) * std::max(longest_ns_, 1.0);
    const auto most = static_cast<std::size_t>(
        std::clamp(inner_budget_ns / size_ns, double{least_inner_sizes}, double{most_inner_sizes}));
    std::vector<Probe> probes;
    for (const InnerSize& each :
         inner_sizes({low_size(), request_.op.axes[open_axis()].multiple_of, ends, measured.comparisons, measured.costs,
                      libraries, candidates_.proposals,
                      [this](std::size_t candidate, std::int64_t size) { return estimate_at(candidate, size); }},
                     most))
      for (const std::size_t candidate : each.candidates)
        if (hold(candidate)) probes.push_back({candidate, each.size});
    std::map<std::int64_t, Comparison> by_size;
    sample_probes(probes, [&](const Probe& probe, const std::vector<double>& samples_ns) {
      by_size[probe.size].push_back({probe.candidate, samples_ns});
    });
    std::vector<std::pair<std::int64_t, Comparison>> found;
    for (auto& [size, comparison] : by_size) {
      const auto end = static_cast<std::size_t>(std::ranges::lower_bound(ends, size) - ends.begin());
      std::erase_if(comparison, [](const Compared& each) { return each.samples_ns.empty(); });
      if (parts_interval(comparison, measured.comparisons[end], libraries)) found.emplace_back(size, comparison);
    }
    merge(measured, found);
    announce_settled({});
  }

  void part_at_switches(Measured& measured) {
    Switches switches(low_size(), request_.op.axes[open_axis()].multiple_of, measured.lengths.ends.front(),
                      measured.comparisons, candidates_.expectations.of_libraries);
    for (auto probes = switches.next(); !probes.empty(); probes = switches.next()) {
      std::erase_if(probes, [&](const Probe& probe) { return !is_in(probe.candidate); });
      sample_probes(probes, [&](const Probe& probe, const std::vector<double>& samples_ns) {
        switches.report(probe, samples_ns);
      });
    }
    merge(measured, switches.found());
  }

  /// Probes of one size stand together.
  void sample_probes(const std::vector<Probe>& probes,
                     const std::function<void(const Probe&, const std::vector<double>&)>& report) {
    if (probes.empty()) return;
    std::vector<Problem> sizes;
    std::vector<Point> points;
    for (const Probe& probe : probes) {
      if (sizes.empty() || sizes.back().axes[open_axis()] != probe.size)
        sizes.emplace_back(request_.bucket).axes[open_axis()] = probe.size;
      points.push_back({probe.candidate, sizes.size() - 1});
    }
    bench_->set_lengths(sizes);
    const std::vector<Samples> samples = sample(points, probe_rounds(), [&](Point) { return longest_ns_; });
    for (std::size_t i = 0; i < probes.size(); ++i) report(probes[i], samples[i].ns);
  }

  void merge(Measured& measured, const std::vector<std::pair<std::int64_t, Comparison>>& found) const {
    std::vector<std::int64_t> sizes;
    for (const auto& each : found) sizes.push_back(each.first);
    std::vector<std::int64_t> ends = measured.lengths.ends.front();
    measured.lengths = with_ends(request_.op, request_.bucket, measured.lengths, sizes);
    for (const auto& [size, comparison] : found) {
      const auto place = std::ranges::lower_bound(ends, size) - ends.begin();
      ends.insert(ends.begin() + place, size);
      for (std::vector<Cost>& costs : measured.costs) costs.insert(costs.begin() + place, Cost());
      for (const Compared& each : comparison) {
        std::vector<double> sorted = each.samples_ns;
        measured.costs[each.candidate][static_cast<std::size_t>(place)] = summarise(sorted);
      }
      measured.comparisons.insert(measured.comparisons.begin() + place, comparison);
    }
  }

  void reject_failed(std::size_t candidate, const std::string& failure) {
    entry(candidate).admission.verdict = store::Verdict::launch_failed;
    entry(candidate).admission.reason = failure;
    search_->reject(candidate);
    loaded_.erase(candidate);
  }

  /// Announces candidates that the search brought in and does not ask for again now.
  void announce_settled(const std::vector<Point>& asked) {
    std::erase_if(fresh_, [&](std::size_t candidate) {
      if (std::ranges::find(asked, candidate, &Point::candidate) != asked.end()) return false;
      announce(TuneEvent::Kind::candidate, &candidate);
      return true;
    });
  }

  void drop_eliminated() {
    std::erase_if(loaded_, [&](std::size_t candidate) {
      const bool beaten = !search_->contends(candidate);
      if (beaten) bench_->drop(candidate);
      return beaten;
    });
  }

  [[nodiscard]] TuneEvent event_of(TuneEvent::Kind kind) const {
    TuneEvent event;
    event.kind = kind;
    event.op = request_.op.name;
    event.bucket = bucket_text_;
    event.done = announced_;
    event.total = static_cast<std::int64_t>(candidates_.entries.size());
    event.best_ns = std::isfinite(best_ns_) ? best_ns_ : 0;
    if (candidates_.has_baseline)
      if (const Cost& cost = search_->cost({0, candidates_.lengths.problems.size() - 1}); !cost.failed())
        event.baseline_ns = cost.median_ns;
    return event;
  }

  /// Reports a candidate's time at the largest length at which it was timed.
  void announce(TuneEvent::Kind kind, const std::size_t* candidate) {
    if (kind == TuneEvent::Kind::candidate) ++announced_;
    if (!request_.on_event) return;
    TuneEvent event = event_of(kind);
    std::string config;  // the event holds views
    if (candidate != nullptr) {
      const Entry& of = entry(*candidate);
      config = manifest::to_string(*of.implementation, of.config);
      event.implementation = of.implementation->name;
      event.config = config;
      event.verdict = to_string(of.admission.verdict);
      event.reason = of.admission.reason;
      for (std::size_t length = candidates_.lengths.problems.size(); length-- > 0 && event.cost_ns == 0;)
        if (const Cost& cost = search_->cost({*candidate, length});
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
  Cubins& cubins_;
  std::string bucket_text_;
  Clock::time_point begun_ = Clock::now(), sampled_ = begun_;
  std::future<std::unique_ptr<Bench>> preparing_;
  Candidates candidates_;
  std::unique_ptr<Search> search_;
  std::unique_ptr<Bench> bench_;
  std::set<std::size_t> loaded_;
  std::vector<std::size_t> fresh_;         // brought in and not yet announced
  std::int64_t done_ = 0, announced_ = 0;  // candidates brought in, and announced
  double best_ns_ = std::numeric_limits<double>::infinity();
  double longest_ns_ = 0;  // of the fastest at the bucket's upper edge
};

/// Leaves out a default that does not compile.
void add_row(std::vector<store::CubinRow>& rows, const jit::Specialisation& needed, Cubins& cubins) {
  try {
    rows.push_back(to_row(needed, cubins.get(needed)));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace

TuneResult tune_bucket(const TuneRequest& request, Cubins& cubins) {
  try {
    return Session(request, cubins).run();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    throw Error(ErrorKind::out_of_memory,
                fmt::format("tuning {} {}: {}", request.op.name, manifest::display_text(request.op, request.bucket),
                            error.what()));
  }
}

void compile_ahead(const TuneRequest& request, Cubins& cubins) {
  for (const jit::Specialisation& needed : verification(request.op, request.bucket, request.device.facts, request.arch))
    cubins.prefetch(needed, jit::Urgency::ahead);
  const Candidates candidates = candidates_for(request, cubins);
  if (candidates.entries.empty()) return;
  for (const std::size_t first : search_for(request, candidates, cubins)->upcoming())
    cubins.prefetch(candidates.entries[first].specialisation, jit::Urgency::ahead);
}

void publish(const TuneRequest& request, const TuneResult& result, Cubins& cubins) {
  std::vector<store::CubinRow> rows;
  std::set<std::string> labels;
  for (const CompiledKernel& each : result.kernels)
    if (labels.insert(each.specialisation.label).second) rows.push_back(to_row(each.specialisation, each.cubin));
  for (const jit::Specialisation& needed :
       deployed(request.op, request.bucket, request.device.facts, request.arch, &result.record))
    if (labels.insert(needed.label).second) add_row(rows, needed, cubins);
  cubins.layers().put_all({&result.record, 1}, rows);
}

}  // namespace kiln::tune
