#include "tune/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "answer/model.hpp"
#include "answer/prior.hpp"
#include "answer/serving.hpp"
#include "jit/executable.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

class CandidateBuilder {
 public:
  CandidateBuilder(const CandidatesRequest& request, std::span<const store::Record> neighbours)
      : request_(request),
        libraries_(request.libraries != nullptr ? *request.libraries : here_),
        prior_(request.bucket, neighbours) {}

  Candidates gather() {
    const answer::Usable baseline = answer::default_for(request_.bucket, request_.bucket.edge);
    if (baseline) {
      add(baseline);
      result_.has_baseline = true;
    }
    add_space(request_.bucket.edge);
    double best_ns = std::numeric_limits<double>::infinity();
    for (const Candidate& each : result_.list) best_ns = std::min(best_ns, expected_ns(each, request_.bucket.edge));
    const Ends& most = *std::ranges::find_if(
        ends_by_time, [&](const Ends& each) { return !std::isfinite(best_ns) || best_ns <= each.up_to_ns; });
    result_.sizes = answer::even_sizes(*request_.bucket.op, request_.bucket.edge, most.even);
    const std::vector<Problem>& problems = result_.sizes.problems;
    if (problems.size() > 2) add_space(problems[problems.size() / 2]);
    if (problems.size() > 1) add_space(problems.front());
    if (!request_.all) drop_slowest();
    if (result_.sizes.axes.size() == 1 && most.more > 0)
      result_.sizes = with_ends(request_.bucket.edge, result_.sizes, stairs_of_fastest(most.more));
    add_library_configs(most.more);
    finish();
    name_proposals();
    return std::move(result_);
  }

 private:
  void add(const manifest::Variant& variant) {
    if (!seen_.insert(variant).second) return;
    Candidate candidate;
    static_cast<manifest::Variant&>(candidate) = variant;
    candidate.correction = prior_.correction(variant);
    result_.list.push_back(std::move(candidate));
  }

  [[nodiscard]] bool may_take_part(const manifest::Implementation& implementation) const {
    return !implementation.is_collective() || request_.has_communicator;
  }

  [[nodiscard]] answer::AxisSizes only_axis() const {
    return answer::sizes_of(*request_.bucket.op, request_.bucket.edge, result_.sizes.axes.front());
  }

  /// Adds the configs of all eligible implementations with kernels that [search] allows at this size, in the manifest's
  /// order.
  void add_space(const Problem& at) {
    for (const manifest::Implementation& implementation : request_.bucket.op->implementations) {
      if (!implementation.has_kernels() || !may_take_part(implementation) ||
          manifest::why_not_eligible(request_.bucket, implementation, at))
        continue;
      for (manifest::Config& config : manifest::searched_space(request_.bucket, implementation, at))
        add({&implementation, std::move(config)});
    }
  }

  /// Returns the timed sizes and, on a single open axis, sizes between them: a library has stairs of its own, and
  /// asking it needs no compile. Sizes between are of no use where the bucket is not parted: it has one end and gets no
  /// `more`.
  [[nodiscard]] std::vector<Problem> sizes_asked_of_library(std::size_t more) const {
    if (result_.sizes.axes.size() != 1 || (result_.sizes.problems.size() == 1 && more == 0))
      return result_.sizes.problems;
    return with_ends(request_.bucket.edge, result_.sizes, only_axis().evenly(library_sizes)).problems;
  }

  /// Returns the size whose proposals stand for `at`: itself, or where that is a multiple of library_exception the next
  /// smaller one that is legal. Of several open axes it is one of the last: rows, after the batch.
  [[nodiscard]] Problem asked_for(const manifest::Implementation& implementation, const Problem& at) const {
    if (result_.sizes.axes.empty()) return at;
    const std::size_t open = result_.sizes.axes.back();
    const answer::AxisSizes axis = answer::sizes_of(*request_.bucket.op, request_.bucket.edge, open);
    const std::int64_t size = at.axes[open];
    if (size % library_exception != 0) return at;
    Problem asked = at;
    for (std::int64_t below = size - axis.multiple; below >= axis.low && below > size - library_exception;
         below -= axis.multiple) {
      asked.axes[open] = below;
      if (!manifest::default_of(implementation).broken_constraint(request_.bucket, asked)) return asked;
    }
    return at;
  }

  /// Adds the algorithms that libraries propose, and up to `more` ends at sizes where a library's first proposal
  /// changes.
  void add_library_configs(std::size_t more) {
    for (const manifest::Implementation& implementation : request_.bucket.op->implementations) {
      if (implementation.has_kernels() || !may_take_part(implementation)) continue;
      const std::size_t begin = firsts_.size();
      std::vector<std::vector<manifest::Config>> proposed, exceptions;
      for (const Problem& at : sizes_asked_of_library(more)) {
        if (manifest::why_not_eligible(request_.bucket, implementation, at)) continue;
        const auto& sizes = result_.sizes.problems;
        const bool is_timed = std::ranges::find(sizes, at) != sizes.end();
        const Problem asked = asked_for(implementation, at);
        auto configs = libraries_.candidates(request_.bucket, implementation, asked, is_timed ? library_configs : 1);
        if (is_timed && !(asked == at)) {
          auto exception = libraries_.candidates(request_.bucket, implementation, at, 1);
          if (configs.empty()) configs = exception;
          note_proposals(implementation, exception, at);
          exceptions.push_back(std::move(exception));
        }
        if (configs.empty()) continue;
        note_proposals(implementation, configs, at);
        firsts_.push_back({{&implementation, configs.front()}, at});
        proposed.push_back(std::move(configs));
      }
      proposed.insert(proposed.end(), exceptions.begin(), exceptions.end());
      // The model does not tell a library's configs apart; the library's order does. The search tries few of them, in
      // this order: not those of the smallest sizes first.
      for (std::size_t rank = 0; rank < library_configs; ++rank)
        for (const std::vector<manifest::Config>& configs : proposed)
          if (rank < configs.size()) add({&implementation, configs[rank]});
      if (result_.sizes.axes.size() != 1 || more == 0) continue;
      std::vector<std::int64_t> changes;
      for (std::size_t i = begin; i + 1 < firsts_.size(); ++i)
        if (changes_after(i)) changes.push_back(firsts_[i].at.axes[result_.sizes.axes.front()]);
      result_.sizes = with_ends(request_.bucket.edge, result_.sizes, answer::some_of(changes, more));
    }
  }

  /// A timed or asked size for which a library proposed an algorithm.
  struct ProposedFor {
    Problem at;
    bool is_first;
  };
  void note_proposals(const manifest::Implementation& implementation, std::span<const manifest::Config> configs,
                      const Problem& at) {
    for (std::size_t rank = 0; rank < configs.size(); ++rank)
      proposed_[{&implementation, configs[rank]}].push_back({at, rank == 0});
  }
  /// Returns, by timed size, whether a library proposed the candidate for it or for a size near it. What is legal at
  /// none of those counts as proposed wherever it is legal, or the search would never be done with it.
  [[nodiscard]] std::vector<bool> proposed_near(const Candidate& candidate, const std::vector<bool>& legal) const {
    const auto found = proposed_.find(candidate);
    std::vector<bool> is_near(legal.size(), found == proposed_.end());
    bool any = found == proposed_.end();
    for (std::size_t i = 0; i < legal.size() && found != proposed_.end(); ++i) {
      is_near[i] = std::ranges::any_of(
          found->second, [&](const ProposedFor& each) { return are_near(each, result_.sizes.problems[i]); });
      any = any || (is_near[i] && legal[i]);
    }
    return any ? is_near : legal;
  }
  [[nodiscard]] bool are_near(const ProposedFor& proposed, const Problem& timed) const {
    const std::vector<std::size_t>& axes = result_.sizes.axes;
    const std::int64_t most = (proposed.is_first ? near_first_proposal : near_proposal) /
                              std::max<std::int64_t>(static_cast<std::int64_t>(axes.size()), 1);
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (std::abs(nearest_end(i, timed.axes[axes[i]]) - nearest_end(i, proposed.at.axes[axes[i]])) > most)
        return false;
    return true;
  }
  [[nodiscard]] std::int64_t nearest_end(std::size_t axis, std::int64_t size) const {
    const std::vector<std::int64_t>& ends = result_.sizes.ends[axis];
    const auto above = std::ranges::lower_bound(ends, size);
    const bool is_below = above == ends.end() || (above != ends.begin() && size - above[-1] < *above - size);
    return above - ends.begin() - (is_below ? 1 : 0);
  }

  /// Whether a library's first proposal is another one at the next size where it was asked, or that was the last size.
  [[nodiscard]] bool changes_after(std::size_t first) const {
    return first + 1 == firsts_.size() || firsts_[first + 1].implementation != firsts_[first].implementation ||
           firsts_[first + 1].config != firsts_[first].config;
  }

  /// Keeps the candidates whose expected time is nearest to the best at some size, in their order.
  void drop_slowest() {
    std::vector<Candidate>& all = result_.list;
    if (all.size() <= most_candidates) return;
    const std::vector<Problem>& problems = result_.sizes.problems;
    std::vector<double> behind(all.size(), std::numeric_limits<double>::infinity());
    for (const std::size_t size : {std::size_t{0}, problems.size() / 2, problems.size() - 1}) {
      std::vector<double> ns;
      for (const Candidate& each : all) ns.push_back(expected_ns(each, problems[size]));
      const double best = *std::ranges::min_element(ns);
      for (std::size_t i = 0; i < ns.size(); ++i) behind[i] = std::min(behind[i], ns[i] / best);
    }
    std::vector<double> ranked = behind;
    std::ranges::nth_element(ranked, ranked.begin() + most_candidates);
    const double limit = ranked[most_candidates];
    std::vector<Candidate> kept;
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((i == 0 && result_.has_baseline) || behind[i] < limit) kept.push_back(std::move(all[i]));
    all = std::move(kept);
  }

  [[nodiscard]] double expected_ns(const Candidate& candidate, const Problem& at) const {
    return answer::estimate(request_.bucket, candidate, at).ns * candidate.correction;
  }

  [[nodiscard]] bool is_legal(const Candidate& candidate, const Problem& at) const {
    if (manifest::why_not_eligible(request_.bucket, *candidate.implementation, at) ||
        candidate.broken_constraint(request_.bucket, at))
      return false;
    return !candidate.implementation->is_library() || !libraries_.why_refused(request_.bucket, candidate, at);
  }

  /// Returns up to `at_most` further ends, where the stairs of the fastest expected configs end.
  [[nodiscard]] std::vector<std::int64_t> stairs_of_fastest(std::size_t at_most) const {
    const answer::AxisSizes axis = only_axis();
    const std::vector<std::int64_t>& ends = result_.sizes.ends.front();
    const answer::TimedSizes scanned = with_ends(request_.bucket.edge, result_.sizes, axis.evenly(sizes_scanned));
    std::set<std::size_t> looked_at;
    const auto look_at = [&](std::int64_t size, std::size_t configs) {
      Problem at = request_.bucket.edge;
      at.axes[result_.sizes.axes.front()] = size;
      std::vector<std::pair<double, std::size_t>> ranked;
      for (std::size_t i = 0; i < result_.list.size(); ++i)
        if (const double ns = expected_ns(result_.list[i], at); std::isfinite(ns)) ranked.emplace_back(ns, i);
      const auto some = static_cast<std::ptrdiff_t>(std::min(ranked.size(), configs));
      std::ranges::partial_sort(ranked, ranked.begin() + some);
      for (auto each = ranked.begin(); each != ranked.begin() + some; ++each)
        if (is_legal(result_.list[each->second], at)) looked_at.insert(each->second);
    };
    std::int64_t before = axis.low - 1;
    for (const std::int64_t end : ends) {
      // Tiles that fit sizes between two ends need not be among the fastest at either.
      const std::int64_t middle = before + (end - before) / 2, inside = middle - middle % axis.multiple;
      if (ends.size() <= few_ends && inside > before) look_at(inside, stairs_configs_inside);
      look_at(end, stairs_configs);
      before = end;
    }
    std::vector<std::vector<double>> ns;
    for (const std::size_t i : looked_at) {
      std::vector<double>& row = ns.emplace_back();
      for (const Problem& at : scanned.problems) {
        const bool legal = !result_.list[i].broken_constraint(request_.bucket, at);
        row.push_back(legal ? expected_ns(result_.list[i], at) : std::numeric_limits<double>::infinity());
      }
    }
    return ns.empty() ? std::vector<std::int64_t>() : answer::stairs(scanned.ends.front(), ns, ends, at_most);
  }

  /// Fills the expectations, and drops candidates that are legal at no size.
  void finish() {
    Expectations& expectations = result_.expectations;
    const std::vector<Problem>& problems = result_.sizes.problems;
    expectations.one_serves_all = manifest::sizes_may_differ_between_ranks(*request_.bucket.op, request_.bucket.edge);
    std::vector<Candidate> kept;
    std::map<std::pair<const manifest::Implementation*, std::vector<std::string>>, std::size_t> kernels;
    for (Candidate& candidate : result_.list) {
      std::vector<bool> legal;
      std::vector<double> expected;
      for (const Problem& at : problems) {
        legal.push_back(is_legal(candidate, at));
        expected.push_back(legal.back() ? expected_ns(candidate, at) : std::numeric_limits<double>::infinity());
        if (legal.back()) candidate.at = at;
      }
      if (std::ranges::find(legal, true) == legal.end()) continue;
      candidate.specialisation = jit::specialise(request_.bucket, candidate, candidate.at, request_.arch);
      expectations.proposed_near.push_back(proposed_near(candidate, legal));
      expectations.legal.push_back(std::move(legal));
      expectations.expected_ns.push_back(std::move(expected));
      expectations.position.push_back(position_of(candidate));
      expectations.kernel.push_back(
          kernels
              .emplace(std::pair(candidate.implementation, candidate.specialisation.name_expressions), kernels.size())
              .first->second);
      if (candidate.implementation->is_library()) {
        expectations.of_libraries.push_back(kept.size());
        if (candidate.implementation->has_kernels()) expectations.modelled_libraries.push_back(kept.size());
      }
      kept.push_back(std::move(candidate));
    }
    result_.list = std::move(kept);
    const auto try_first = [&](const manifest::Variant& first) {
      const manifest::Implementation& implementation = *first.implementation;
      for (std::size_t i = 0; i < result_.list.size(); ++i)
        if (result_.list[i].implementation == &implementation &&
            manifest::kernel_config(implementation, result_.list[i].config) == first.config)
          expectations.tried_first.push_back(i);
    };
    for (const manifest::Variant& each : prior_.transferred(transferred_winners)) try_first(each);
    // The search times nothing at sizes that were only asked of a library.
    std::set<manifest::Variant> firsts;
    for (const LibraryFirst& each : firsts_)
      if (std::ranges::find(problems, each.at) != problems.end()) firsts.insert(each);
    for (const auto& [implementation, config] : firsts)
      try_first({implementation, manifest::kernel_config(*implementation, config)});
    try_with_libraries_first();
  }

  /// Kernels beside a library are always timed: of each such implementation, the fastest expected config at each size
  /// comes first.
  void try_with_libraries_first() {
    Expectations& expectations = result_.expectations;
    std::set<std::pair<const manifest::Implementation*, std::size_t>> fastest;
    for (std::size_t size = 0; size < result_.sizes.problems.size(); ++size) {
      const auto expected_at = [&](std::size_t candidate) { return expectations.expected_ns[candidate][size]; };
      std::map<const manifest::Implementation*, std::size_t> best;
      for (const std::size_t i : expectations.modelled_libraries) {
        if (!std::isfinite(expected_at(i))) continue;
        const auto [place, is_new] = best.emplace(result_.list[i].implementation, i);
        if (!is_new && expected_at(i) < expected_at(place->second)) place->second = i;
      }
      fastest.insert(best.begin(), best.end());
    }
    for (const auto& each : fastest) expectations.tried_first.push_back(each.second);
  }

  /// Looks up the candidates that a library proposed; those that are legal at no size are gone.
  void name_proposals() {
    if (result_.sizes.axes.size() != 1) return;
    for (std::size_t first = 0; first < firsts_.size(); ++first)
      for (std::size_t i = 0; i < result_.list.size() && changes_after(first); ++i)
        if (result_.list[i] == firsts_[first])
          result_.proposals.push_back({firsts_[first].at.axes[result_.sizes.axes.front()], i});
    std::ranges::sort(result_.proposals, {}, &FirstProposal::last_size);
  }

  [[nodiscard]] std::vector<std::int64_t> position_of(const Candidate& candidate) const {
    std::vector<std::int64_t> position{candidate.implementation - request_.bucket.op->implementations.data()};
    for (std::size_t i = 0; i < candidate.config.size(); ++i) {
      const auto& values = candidate.implementation->parameters[i].values;
      if (values.empty())
        position.push_back(candidate.config[i]);
      else
        position.push_back(
            std::ranges::count_if(values, [&](std::int64_t value) { return value < candidate.config[i]; }));
    }
    return position;
  }

  /// What a library proposes first at a size where it was asked.
  struct LibraryFirst : manifest::Variant {
    Problem at;
  };

  const CandidatesRequest& request_;
  Libraries here_;
  Libraries& libraries_;
  answer::Prior prior_;
  Candidates result_;
  std::vector<LibraryFirst> firsts_;  // by library, then size
  std::map<manifest::Variant, std::vector<ProposedFor>> proposed_;
  std::set<manifest::Variant> seen_;
};

}  // namespace

Candidates candidates_of(const CandidatesRequest& request, std::span<const store::Record> neighbours) {
  return CandidateBuilder(request, neighbours).gather();
}

}  // namespace kiln::tune
