#include "tune/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "tune/deploy.hpp"
#include "tune/launch_choice.hpp"
#include "tune/model.hpp"
#include "tune/neighbours.hpp"
#include "tune/prior.hpp"

namespace kiln::tune {
namespace {

constexpr std::size_t neighbours_asked = 8;  // records whose measurements correct the model
constexpr std::size_t favourites_asked = 2;  // of their winners, tried whatever is expected of them
constexpr double longest_chained_ns = 1e6;   // launches overlap by microseconds
constexpr std::size_t library_asked = 16;    // configs that a library is asked for
constexpr std::size_t library_tried = 2;     // of those, its first, whatever is expected of them

struct Entry {
  const spec::Implementation* implementation;
  spec::Config config;
  jit::Specialisation specialisation;
  store::Candidate result;
  std::vector<std::int64_t> position{};  // implementation, then the place of each parameter's value among its values
};

std::vector<std::int64_t> position_of(const spec::Op& op, const spec::Implementation& implementation,
                                      const spec::Config& config) {
  std::vector<std::int64_t> position{&implementation - op.implementations.data()};
  for (std::size_t i = 0; i < config.size(); ++i) {
    const auto& values = implementation.parameters[i].values;
    if (values.empty())
      position.push_back(config[i]);
    else
      position.push_back(
          std::count_if(values.begin(), values.end(), [&](std::int64_t value) { return value < config[i]; }));
  }
  return position;
}

std::vector<spec::Config> space_of(const TuneRequest& request, const spec::Implementation& implementation) {
  const spec::DeviceFacts& device = request.device.facts;
  if (!implementation.is_library()) return spec::searched_space(request.op, implementation, request.bucket, device);
  return jit::library_candidates(request.op, implementation,
                                 spec::make_frame(request.op, &implementation, request.bucket, device), library_asked);
}

/// The baseline first, then each implementation's space in the manifest's order.
std::vector<Entry> candidates_of(const TuneRequest& request) {
  std::vector<Entry> entries;
  const auto add = [&](const spec::Implementation& implementation, const spec::Config& config) {
    const auto frame = spec::make_frame(request.op, &implementation, request.bucket, request.device.facts, config);
    Entry entry{&implementation, config, jit::specialise(request.op, implementation, frame, request.arch), {}};
    entry.position = position_of(request.op, implementation, config);
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
    for (const spec::Config& config : space_of(request, implementation))
      if (&implementation != baseline.implementation || config != baseline.config) add(implementation, config);
  }
  return entries;
}

std::optional<Problem> inside_of(const TuneRequest& request) {
  Problem low = spec::low_corner(request.op, request.bucket);
  if (request.lowest > 0) low.axes[spec::refined_axis(request.op).value()] = request.lowest;
  return spec::inner_problem(request.op, low, request.bucket);
}

void set_cost(store::Candidate& result, const Cost& cost) {
  result.cost_ns = cost.median_ns;
  result.low_ns = cost.low_ns;
  result.high_ns = cost.high_ns;
  result.samples = cost.samples;
}

class Session {
 public:
  Session(const TuneRequest& request, Cubins& cubins)
      : request_(request),
        cubins_(cubins),
        bucket_text_(spec::to_string(request.op, request.bucket)),
        inside_(inside_of(request)),
        entries_(candidates_of(request)) {
    if (entries_.empty())
      throw Error(ErrorKind::not_tuned,
                  fmt::format("{}: no implementation has a legal config for {} on {}", request.op.name, bucket_text_,
                              request.device.facts.device_class()));
    search_ = make_search();
  }

  TuneResult run() {
    // Before any candidate: nothing can be verified without the reference.
    for (const jit::Specialisation& needed :
         verification(request_.op, request_.bucket, request_.device.facts, request_.arch))
      cubins_.prefetch(needed);
    prefetch_upcoming();
    announce(TuneEvent::Kind::begun, nullptr);
    prepare_bench();
    while (auto ask = search_->next()) {
      announce_settled(ask->candidates);
      check_time();
      for (const std::size_t candidate : ask->candidates)
        if (!is_in(candidate)) cubins_.prefetch(entries_[candidate].specialisation);
      std::erase_if(ask->candidates, [&](std::size_t candidate) { return !is_in(candidate) && !bring_in(candidate); });
      prefetch_upcoming();
      if (!ask->candidates.empty()) take_samples(*ask);
      let_go_of_beaten();
    }
    announce_settled({});
    return finish();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<Search> make_search() {
    if (request_.search.strategy == Strategy::exhaustive) return exhaustive(entries_.size());
    const std::vector<store::Record> near = neighbours(cubins_.layers(), request_.op, request_.bucket,
                                                       request_.device.facts, request_.regime, neighbours_asked);
    const Prior prior(request_.op, request_.bucket, request_.device.facts, request_.regime, near);
    Outlook outlook;
    for (const Entry& entry : entries_) {
      outlook.expected_ns.push_back(prior.expected_ns(*entry.implementation, entry.config));
      outlook.position.push_back(entry.position);
    }
    for (const Prior::Choice& winner : prior.transferred(favourites_asked))
      for (std::size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].implementation == winner.implementation &&
            spec::kernel_config(*winner.implementation, entries_[i].config) == winner.config)
          outlook.favourites.push_back(i);
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].implementation->is_library()) outlook.of_libraries.push_back(i);
    // No estimate tells a library's configs apart, but its own order does.
    for (const std::size_t each :
         std::span(outlook.of_libraries).first(std::min(outlook.of_libraries.size(), library_tried)))
      outlook.favourites.push_back(each);
    return racing(std::move(outlook), {.trials = request_.search.trials, .seed = request_.search.seed});
  }

  void prepare_bench() {
    const BenchSettings settings{request_.op,     request_.bucket, request_.device,
                                 request_.regime, request_.arch,   inside_};
    bench_ = request_.worker != nullptr ? request_.worker->bench(settings, cubins_) : local_bench(settings, cubins_);
    // Not all that it took: a worker's start and the compiles that it waits for leave the device alone.
    if (request_.pace) request_.pace(bench_->prepared_ns());
  }

  void check_stop() const {
    if (request_.stop_requested && request_.stop_requested())
      throw Error(ErrorKind::interrupted,
                  fmt::format("tuning {} {} was interrupted after {} of {} candidates; finished buckets are kept",
                              request_.op.name, bucket_text_, announced_, entries_.size()));
  }

  void check_time() {
    const auto limit = request_.search.time_limit;
    if (limit.count() > 0 && Clock::now() - begun_ > limit) search_->hurry();
  }

  void prefetch_upcoming() {
    for (const std::size_t candidate : search_->upcoming()) cubins_.prefetch(entries_[candidate].specialisation);
  }

  template <class Work>
  void paced(const Work& work) {
    const auto begun = Clock::now();
    work();
    if (request_.pace) request_.pace(std::chrono::duration<double, std::nano>(Clock::now() - begun).count());
  }

  [[nodiscard]] bool is_in(std::size_t candidate) const { return loaded_.contains(candidate); }

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

  /// Compiled, loaded and found right; else rejected and announced.
  bool bring_in(std::size_t candidate) {
    check_stop();
    Entry& entry = entries_[candidate];
    ++done_;
    if (const auto cubin = compile(entry)) {
      paced([&] {
        const Entrance entrance = bench_->admit(candidate, {*entry.implementation, entry.config, cubin->cubin});
        entry.result.verdict = entrance.verdict;
        entry.result.reason = entrance.reason;
        entry.result.registers = entrance.registers;
        entry.result.spill_bytes = entrance.spill_bytes;
      });
    }
    if (entry.result.verdict == store::Verdict::ok) {
      loaded_.insert(candidate);
      fresh_.push_back(candidate);
      return true;
    }
    search_->reject(candidate);
    announce(TuneEvent::Kind::candidate, &entry);
    return false;
  }

  using Sampling = std::vector<Samples> (Bench::*)(std::span<const std::size_t>, std::int64_t);
  /// All rounds, in batches between which the device rests; until one fails.
  std::vector<Samples> sample(Sampling sampling, std::span<const std::size_t> candidates, std::int64_t rounds) {
    std::vector<Samples> all(candidates.size());
    const double round_ns = std::isfinite(best_ns_) ? best_ns_ * static_cast<double>(candidates.size()) : 0;
    in_batches(rounds, round_ns, [&](std::int64_t now) {
      check_stop();
      std::vector<Samples> some;
      paced([&] { some = (bench_.get()->*sampling)(candidates, now); });
      Busy busy;
      bool failed = false;
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].ns.insert(all[i].ns.end(), some[i].ns.begin(), some[i].ns.end());
        all[i].failure = some[i].failure;
        failed = failed || !some[i].failure.empty();
        busy.add(some[i].ns);
      }
      return failed ? Busy() : busy;
    });
    return all;
  }

  void take_samples(const Ask& ask) {
    const std::vector<Samples> samples = sample(&Bench::sample, ask.candidates, ask.rounds);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::size_t candidate = ask.candidates[i];
      if (samples[i].failure.empty()) {
        search_->report(candidate, samples[i].ns);
        best_ns_ = std::min(best_ns_, search_->cost(candidate).median_ns);
      } else {
        reject_ill(candidate, samples[i].failure);
      }
      note_cost(candidate);
    }
    if (ask.inside && inside_) take_samples_inside(ask);
  }

  void take_samples_inside(Ask ask) {
    std::erase_if(ask.candidates, [&](std::size_t candidate) { return !is_in(candidate); });
    if (ask.candidates.empty()) return;
    const std::vector<Samples> samples = sample(&Bench::sample_inside, ask.candidates, ask.rounds);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (samples[i].failure.empty()) {
        search_->report_inside(ask.candidates[i], samples[i].ns);
      } else {
        reject_ill(ask.candidates[i], samples[i].failure);
        note_cost(ask.candidates[i]);
      }
    }
  }

  void reject_ill(std::size_t candidate, const std::string& failure) {
    entries_[candidate].result.verdict = store::Verdict::launch_failed;
    entries_[candidate].result.reason = failure;
    search_->reject(candidate);
    loaded_.erase(candidate);
  }

  /// Those brought in that the search now turns away from: they have the samples that they get for a start.
  void announce_settled(const std::vector<std::size_t>& asked) {
    std::erase_if(fresh_, [&](std::size_t candidate) {
      if (std::find(asked.begin(), asked.end(), candidate) != asked.end()) return false;
      announce(TuneEvent::Kind::candidate, &entries_[candidate]);
      return true;
    });
  }

  void note_cost(std::size_t candidate) {
    store::Candidate& result = entries_[candidate].result;
    set_cost(result, result.verdict == store::Verdict::ok ? search_->cost(candidate) : Cost{0, 0, 0, 0});
    if (result.baseline) baseline_ns_ = result.cost_ns;
  }

  void let_go_of_beaten() {
    std::erase_if(loaded_, [&](std::size_t candidate) {
      const bool beaten = !search_->contends(candidate);
      if (beaten) bench_->drop(candidate);
      return beaten;
    });
  }

  TuneResult finish() {
    for (std::size_t i = 0; i < entries_.size(); ++i)  // all by one clock now
      if (entries_[i].result.verdict == store::Verdict::ok) note_cost(i);
    std::vector<Burden> burdens;
    for (const Entry& entry : entries_) burdens.push_back(burden_of(entry));
    const auto chosen = search_->winner(burdens);
    if (!chosen) {
      const Entry& first = entries_.front();
      throw Error(ErrorKind::not_tuned, fmt::format("{} {}: none of {} candidates came out right; the first, {} {}: {}",
                                                    request_.op.name, bucket_text_, done_, first.result.implementation,
                                                    first.result.config, first.result.reason));
    }
    const KeyedCubin cubin = cubins_.get(entries_[*chosen].specialisation);
    Entry winner = launched_best(entries_[*chosen], cubin.cubin);
    TuneResult result{make_record(winner), winner.specialisation, cubin, {}};
    if (const auto own = winner.implementation->is_library() ? fastest_own() : std::nullopt) {
      const KeyedCubin of_own = cubins_.get(entries_[*own].specialisation);
      const Entry launched = launched_best(entries_[*own], of_own.cubin);
      const double gain = launched.result.cost_ns / entries_[*own].result.cost_ns;
      if (gain * search_->weighed_ns(*own) > search_->weighed_ns(*chosen)) {
        result.runner_up = runner_up_record(launched, of_own);
      } else {  // as fast when it is launched as is best for it
        winner = launched;
        result = {make_record(winner), winner.specialisation, of_own, {}};
      }
    }
    result.record.provenance.compiler = result.cubin.compiler;
    announce(TuneEvent::Kind::finished, &winner);
    return result;
  }

  /// A library's is the largest: a near-tie goes to what every machine has.
  [[nodiscard]] Burden burden_of(const Entry& entry) const {
    if (entry.implementation->is_library())
      return {std::numeric_limits<double>::infinity(), std::numeric_limits<int>::max()};
    if (entry.result.verdict != store::Verdict::ok) return {};
    const Estimate expected = estimate(request_.op, *entry.implementation, request_.bucket, request_.device.facts,
                                       entry.config, request_.regime);
    return {expected.read_bytes, entry.result.registers};
  }

  /// The fastest that needs no library, also of those that only ran in heats: the baseline comes to the finals however slow it is.
  [[nodiscard]] std::optional<std::size_t> fastest_own() const {
    std::optional<std::size_t> fastest;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const Entry& each = entries_[i];
      if (each.implementation->is_library() || each.result.verdict != store::Verdict::ok) continue;
      if (!(each.result.cost_ns > 0)) continue;
      if (!fastest || search_->weighed_ns(i) < search_->weighed_ns(*fastest)) fastest = i;
    }
    return fastest;
  }

  store::Record runner_up_record(const Entry& launched, const KeyedCubin& cubin) {
    store::Record record = make_record(launched);
    record.key = spec::runner_up_key(request_.key);
    record.provenance.compiler = cubin.compiler;
    record.candidates = launches_;  // all others stand among the winner's
    return record;
  }

  /// The winner with the launch that is fastest behind another one.
  Entry launched_best(const Entry& winner, const jit::Cubin& cubin) {
    const spec::Implementation& implementation = *winner.implementation;
    const auto launches =
        spec::launches_of(request_.op, implementation, request_.bucket, request_.device.facts, winner.config);
    // Elsewhere the launches are the same, or what they can differ by is lost in what each takes.
    if (launches.size() < 2 || request_.device.facts.sm() < spec::first_programmatic_sm ||
        winner.result.cost_ns > longest_chained_ns)
      return winner;
    check_stop();
    LaunchChoice choice;
    paced([&] { choice = choose_launch(*bench_, entries_.size(), implementation, launches, cubin); });
    for (std::size_t i = 1; i < choice.trials.size(); ++i) {
      if (i != choice.chosen && choice.trials[i].entrance.verdict == store::Verdict::ok) continue;
      store::Candidate row = winner.result;
      row.baseline = false;
      row.config = spec::to_string(implementation, launches[i]);
      row.verdict = choice.trials[i].entrance.verdict;
      row.reason = choice.trials[i].entrance.reason;
      set_cost(row, i == choice.chosen ? times(choice.apart, winner.result.cost_ns) : Cost{0, 0, 0, 0});
      launches_.push_back(std::move(row));
    }
    if (choice.chosen == 0) return winner;
    Entry best = winner;
    best.config = launches[choice.chosen];
    best.result =
        *std::ranges::find(launches_, spec::to_string(implementation, best.config), &store::Candidate::config);
    launch_gain_ = fmt::format(" (in a chain {:.3f} of the time of its usual launch)", choice.of_usual.median_ns);
    return best;
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
        fmt::format("{}, {} of {} candidates{}{}", to_string(request_.search.strategy), done_, entries_.size(),
                    launch_gain_, of_part()),
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
    for (const Entry& entry : entries_)
      if (entry.result.verdict != store::Verdict::not_timed) record.candidates.push_back(entry.result);
    record.candidates.insert(record.candidates.end(), launches_.begin(), launches_.end());
    return record;
  }

  [[nodiscard]] std::string of_part() const {
    if (request_.lowest <= 0) return {};
    return fmt::format("; for {} from {} on", request_.op.axes[*spec::refined_axis(request_.op)].name, request_.lowest);
  }

  void announce(TuneEvent::Kind kind, const Entry* entry) {
    if (kind == TuneEvent::Kind::candidate) ++announced_;
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
    event.done = announced_;
    event.total = static_cast<std::int64_t>(entries_.size());
    event.best_ns = std::isfinite(best_ns_) ? best_ns_ : 0;
    event.baseline_ns = baseline_ns_;
    request_.on_event(event);
  }

  const TuneRequest& request_;
  Cubins& cubins_;
  std::string bucket_text_;
  std::optional<Problem> inside_;
  std::vector<Entry> entries_;
  std::unique_ptr<Search> search_;
  std::unique_ptr<Bench> bench_;
  std::set<std::size_t> loaded_;
  std::vector<std::size_t> fresh_;          // brought in and not yet announced
  std::vector<store::Candidate> launches_;  // of the winner, other than the one searched: those chosen or refused
  std::string launch_gain_;                 // of the one chosen
  Clock::time_point begun_ = Clock::now();
  std::int64_t done_ = 0, announced_ = 0;  // brought in; told of
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

}  // namespace kiln::tune
