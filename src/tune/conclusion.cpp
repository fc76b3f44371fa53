#include "tune/conclusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <utility>

#include "answer/model.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "tune/launch_choice.hpp"
#include "tune/relative_times.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

class Conclusion {
 public:
  explicit Conclusion(const SearchOutcome& outcome)
      : outcome_(outcome),
        request_(outcome.request),
        candidates_(outcome.candidates.list),
        sizes_(outcome.measured.sizes) {}

  TuneResult conclude() {
    std::vector<std::vector<answer::RelativeTime>> all, own;
    for (const Comparison& each : outcome_.measured.comparisons) {
      const std::size_t size = all.size();
      all.push_back(relative_times_at(size, each));
      Comparison without = each;
      std::erase_if(without, [&](const Compared& compared) { return is_library(compared.candidate); });
      own.push_back(relative_times_at(size, without));
    }
    const bool is_one = manifest::sizes_may_differ_between_ranks(*request_.bucket.op, request_.bucket.edge);
    answer::Assignment fastest = is_one ? one_for_all(true) : answer::choose_configs(all);
    if (std::ranges::none_of(fastest, [](const auto& each) { return each.has_value(); })) throw_nothing_right();
    answer::Assignment without_library;
    if (uses_library(fastest)) without_library = is_one ? one_for_all(false) : answer::choose_configs(own);
    choose_launches(fastest);
    choose_launches(without_library);
    if (!without_library.empty()) prefer_own(fastest, without_library);
    if (!uses_library(fastest)) without_library.clear();
    return result_of(fastest, without_library);
  }

 private:
  /// The fastest launch of a config's kernel.
  struct Launched {
    manifest::Config config;
    double gain = 1;   // its time over that of the config as it was searched
    std::string note;  // for the record's strategy
    std::vector<std::pair<manifest::Config, Admission>> others;
  };

  [[nodiscard]] bool is_library(std::size_t candidate) const {
    return candidates_[candidate].implementation->is_library();
  }
  [[nodiscard]] bool has_kernels(std::size_t candidate) const {
    return candidates_[candidate].implementation->has_kernels();
  }
  [[nodiscard]] bool uses_library(const answer::Assignment& assignment) const {
    return std::ranges::any_of(assignment, [&](const auto& each) { return each && is_library(*each); });
  }

  /// One candidate at all sizes, of those that are legal at each.
  [[nodiscard]] answer::Assignment one_for_all(bool with_library) const {
    std::vector<std::vector<double>> ns(candidates_.size(), std::vector<double>(sizes_.problems.size()));
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& of = candidates_[i];
      const auto is_legal = [&](const Problem& problem) { return !of.broken_constraint(request_.bucket, problem); };
      if ((!with_library && is_library(i)) || of.admission.verdict != store::Verdict::ok ||
          !std::ranges::all_of(sizes_.problems, is_legal))
        continue;
      for (std::size_t size = 0; size < ns[i].size(); ++size)
        if (const Cost& cost = cost_of(i, size); !cost.failed()) ns[i][size] = cost.median_ns;
    }
    return answer::Assignment(sizes_.problems.size(), answer::choose_one(ns));
  }

  [[noreturn]] void throw_nothing_right() const {
    const Candidate& first = candidates_.front();
    throw Error(ErrorKind::not_tuned,
                fmt::format("{} {}: no candidate of {} came out right; the first, {} {}: {}", request_.bucket.op->name,
                            manifest::display_text(*request_.bucket.op, request_.bucket.edge), outcome_.brought_in,
                            first.implementation->name, manifest::to_string(*first.implementation, first.config),
                            first.admission.reason));
  }

  /// A library gets the largest footprint, so that a near-tie goes to a kernel that every machine has.
  [[nodiscard]] Footprint footprint_of(std::size_t size, std::size_t candidate) const {
    if (is_library(candidate)) return {std::numeric_limits<double>::infinity(), std::numeric_limits<int>::max()};
    const Candidate& of = candidates_[candidate];
    const answer::Estimate expected = answer::estimate(request_.bucket, of, sizes_.problems[size]);
    return {expected.read_bytes, of.admission.registers};
  }

  [[nodiscard]] std::vector<answer::RelativeTime> relative_times_at(std::size_t size,
                                                                    const Comparison& comparison) const {
    std::vector<answer::RelativeTime> result =
        relative_times(comparison, [&](std::size_t candidate) { return footprint_of(size, candidate); });
    const bool own_ties = std::ranges::any_of(result, [&](const answer::RelativeTime& each) {
      return !is_library(each.candidate) && each.behind <= near_tie;
    });
    for (answer::RelativeTime& each : result) {
      each.has_code = has_kernels(each.candidate);
      if (own_ties && is_library(each.candidate)) {
        each.ties = false;
        each.behind = std::max(each.behind, 2 * near_tie - 1);
      }
    }
    return result;
  }

  [[nodiscard]] const Cost& cost_of(std::size_t candidate, std::size_t size) const {
    return outcome_.measured.costs[candidate][size];
  }
  [[nodiscard]] Cost cost_at(std::size_t candidate, std::size_t size) const {
    const Cost& cost = cost_of(candidate, size);
    if (!cost.failed()) return cost;
    // Not timed at this size: the nearest larger size at which it was timed stands for it, else the nearest smaller.
    for (std::size_t i = size + 1; i < sizes_.problems.size(); ++i)
      if (const Cost& next = cost_of(candidate, i); !next.failed()) return next;
    for (std::size_t i = size; i-- > 0;)
      if (const Cost& next = cost_of(candidate, i); !next.failed()) return next;
    return {0, 0, 0, 0};
  }

  /// Chooses the launch of each config, at the largest size that it serves.
  void choose_launches(const answer::Assignment& assignment) {
    for (std::size_t size = assignment.size(); size-- > 0;)
      if (assignment[size] && !launched_.contains(*assignment[size]))
        launched_.emplace(*assignment[size], launched_best(*assignment[size], size));
  }

  Launched launched_best(std::size_t candidate, std::size_t size) {
    const Candidate& of = candidates_[candidate];
    Launched best;
    best.config = of.config;
    const auto launches = manifest::launches_of(request_.bucket, of, of.at);
    // Otherwise launches are equal, or their difference is small against their time.
    if (launches.size() < 2 || request_.bucket.device->sm() < manifest::first_programmatic_sm ||
        cost_at(candidate, size).median_ns > longest_chained_ns)
      return best;
    const answer::KeyedCubin cubin = outcome_.machine.compiled(of.specialisation);
    LaunchChoice choice;
    outcome_.paced([&] {
      choice =
          choose_launch(outcome_.bench, candidates_.size(), size, {*of.implementation, cubin.cubin, of.at}, launches);
    });
    for (std::size_t i = 1; i < choice.trials.size(); ++i)
      if (i != choice.chosen && choice.trials[i].admission.verdict != store::Verdict::ok)
        best.others.emplace_back(launches[i], choice.trials[i].admission);
    if (choice.chosen == 0) return best;
    best.config = launches[choice.chosen];
    best.gain = choice.apart.median_ns;
    best.note = fmt::format(" (in a chain {:.3f} of the time of its usual launch)", choice.of_usual.median_ns);
    return best;
  }

  /// Replaces a library wherever Kiln's own kernel, by its fastest launch, is as fast.
  void prefer_own(answer::Assignment& fastest, const answer::Assignment& without_library) const {
    for (std::size_t i = 0; i < fastest.size(); ++i)
      if (fastest[i] && is_library(*fastest[i]) && without_library[i] &&
          cost_at(*without_library[i], i).median_ns * launched_.at(*without_library[i]).gain <=
              cost_at(*fastest[i], i).median_ns)
        fastest[i] = without_library[i];
  }

  TuneResult result_of(const answer::Assignment& fastest, const answer::Assignment& without_library) {
    TuneResult result;
    result.record = record_of();
    if (fastest.back()) result.record.provenance.strategy += launched_.at(*fastest.back()).note;
    add_choices(result, store::Role::fastest, fastest);
    add_choices(result, store::Role::without_library, without_library);
    add_candidates(result.record);
    return result;
  }

  void add_choices(TuneResult& result, store::Role role, const answer::Assignment& assignment) {
    for (const answer::Interval& each :
         answer::intervals(*request_.bucket.op, request_.bucket.edge, sizes_, assignment)) {
      const Candidate& of = candidates_[each.candidate];
      const Launched& launched = launched_.at(each.candidate);
      const answer::KeyedCubin cubin = outcome_.machine.compiled(of.specialisation);
      const Cost cost = times(cost_at(each.candidate, each.size), launched.gain);
      store::Choice choice;
      choice.role = role;
      choice.sizes = manifest::to_string(*request_.bucket.op, each.region);
      choice.implementation = of.implementation->name;
      choice.config = manifest::to_string(*of.implementation, launched.config);
      choice.cost_ns = cost.median_ns;
      choice.low_ns = cost.low_ns;
      choice.high_ns = cost.high_ns;
      choice.samples = cost.samples;
      choice.source_digest = manifest::to_hex(jit::source_digest(of.specialisation));
      choice.compiler = cubin.compiler;
      result.record.choices.push_back(std::move(choice));
      const auto is_kept = std::ranges::any_of(result.kernels, [&](const CompiledKernel& kernel) {
        return kernel.specialisation.label == of.specialisation.label;
      });
      if (!is_kept && has_kernels(each.candidate)) result.kernels.push_back({of.specialisation, cubin});
    }
  }

  /// Returns a row without a time, at all sizes of the bucket.
  [[nodiscard]] store::TriedCandidate row_of(const Candidate& of, const manifest::Config& config,
                                             const Admission& admission) const {
    store::TriedCandidate row;
    row.implementation = of.implementation->name;
    row.config = manifest::to_string(*of.implementation, config);
    row.sizes = manifest::open_sizes(*request_.bucket.op, request_.bucket.edge);
    row.verdict = admission.verdict;
    row.reason = admission.reason;
    row.registers = admission.registers;
    row.spill_bytes = admission.spill_bytes;
    return row;
  }

  /// Adds a row for each size at which a candidate was timed, and one row for each rejected candidate or launch.
  void add_candidates(store::Record& record) const {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& of = candidates_[i];
      if (of.admission.verdict == store::Verdict::not_timed) continue;
      store::TriedCandidate row = row_of(of, of.config, of.admission);
      row.baseline = i == 0 && outcome_.candidates.has_baseline;
      if (of.admission.verdict != store::Verdict::ok) {
        record.candidates.push_back(std::move(row));
        continue;
      }
      for (std::size_t size = 0; size < sizes_.problems.size(); ++size) {
        const Cost& cost = cost_of(i, size);
        if (cost.failed()) continue;
        row.sizes = manifest::open_sizes(*request_.bucket.op, sizes_.problems[size]);
        row.cost_ns = cost.median_ns;
        row.low_ns = cost.low_ns;
        row.high_ns = cost.high_ns;
        row.samples = cost.samples;
        record.candidates.push_back(row);
      }
    }
    for (const auto& [candidate, launched] : launched_)
      for (const auto& [config, admission] : launched.others)
        record.candidates.push_back(row_of(candidates_[candidate], config, admission));
  }

  [[nodiscard]] store::Record record_of() const {
    store::Record record;
    record.key = request_.bucket.key();
    record.op = request_.bucket.op->name;
    record.revision = request_.bucket.op->revision;
    record.device_class = request_.bucket.device->device_class_for(*request_.bucket.op);
    record.regime = manifest::to_string(request_.bucket.regime);
    record.bucket = manifest::to_string(*request_.bucket.op, request_.bucket.edge);
    const Cost& baseline = cost_of(0, sizes_.problems.size() - 1);
    record.baseline_ns = outcome_.candidates.has_baseline && !baseline.failed() ? baseline.median_ns : 0;
    const std::string sizes =
        sizes_.problems.size() > 1 ? fmt::format(" at {} lengths", sizes_.problems.size()) : std::string();
    record.provenance = {
        KILN_VERSION, request_.device.name, request_.device.driver_version,
        fmt::format("{}, {} of {} candidates{}", to_string(request_.search.strategy), outcome_.brought_in,
                    candidates_.size(), sizes),
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
    return record;
  }

  const SearchOutcome& outcome_;
  const TuneRequest& request_;
  const std::vector<Candidate>& candidates_;
  const answer::TimedSizes& sizes_;
  std::map<std::size_t, Launched> launched_;
};

}  // namespace

TuneResult conclude(const SearchOutcome& outcome) { return Conclusion(outcome).conclude(); }

}  // namespace kiln::tune
