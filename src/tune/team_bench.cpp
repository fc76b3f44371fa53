#include "tune/team_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "kiln/error.hpp"
#include "kiln/team.hpp"
#include "process/message.hpp"
#include "team/exchange.hpp"
#include "tune/verification_code.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {
namespace {

using Json = nlohmann::json;

class TeamBench final : public Bench {
 public:
  TeamBench(const BenchSettings& settings, answer::Cubins& cubins, RankTrials& trials)
      : trials_(trials),
        patience_(trials.team().rendezvous()),
        op_(settings.bucket.op->name),
        begin_(to_json(settings, verification_rows(settings.bucket, settings.arch, cubins))) {
    begin_["seed"] = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    ready();
  }

  void set_sizes(std::vector<Problem> sizes) override {
    sizes_ = {{"lengths", to_json(std::span<const Problem>(sizes))}};
    if (has_bucket_) tell(sizes_);
  }

  Admission admit(std::size_t candidate, const Trial& trial) override {
    Json message = to_json(candidate, trial);
    const Answers answers = attempt(message);
    Admission all;
    all.verdict = store::Verdict::launch_failed;
    all.reason = answers.failure;
    if (!answers.failure.empty()) return all;
    all = combined(answers.all);
    if (all.verdict == store::Verdict::ok) {
      admitted_.insert_or_assign(candidate, std::move(message));
      was_admitted_ = true;
    } else {
      leave_out(candidate);
    }
    return all;
  }

  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    const Answers answers = attempt({{"sample", to_json(points)}, {"rounds", rounds}}, points);
    if (!answers.failure.empty()) {
      if (points.size() > 1) return one_by_one(points, rounds);
      admitted_.erase(points.front().candidate);
      return {{{}, answers.failure}};
    }
    std::vector<Samples> all = samples_from_json(answers.all.front(), points.size());
    bool has_failed = false;
    for (std::size_t rank = 0; rank < answers.all.size(); ++rank) {
      const std::vector<Samples> some = samples_from_json(answers.all[rank], points.size());
      for (std::size_t i = 0; i < all.size(); ++i) has_failed = add(all[i], some[i], rank) || has_failed;
    }
    if (has_failed) tell({{"reset", true}});
    return all;
  }

  /// The length of a chain would follow from a rank's own times, so single launches are sampled.
  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return sample(points, rounds);
  }

  void drop(std::size_t candidate) override {
    admitted_.erase(candidate);
    if (has_bucket_) tell({{"drop", candidate}});
  }

  [[nodiscard]] double prepared_ns() const override { return prepared_ns_; }

 private:
  using Answers = RankTrials::Answers;

  static Admission combined(const std::vector<Json>& answers) {
    Admission all = admission_from_json(answers.front());
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      const Admission each = admission_from_json(answers[rank]);
      all.registers = std::max(all.registers, each.registers);
      all.spill_bytes = std::max(all.spill_bytes, each.spill_bytes);
      if (each.verdict == store::Verdict::ok || (all.verdict != store::Verdict::ok && rank > 0)) continue;
      all.verdict = each.verdict;
      all.reason = of_rank(rank, each.reason);
    }
    return all;
  }

  /// Takes the larger time of each run. Returns whether the rank failed.
  static bool add(Samples& all, const Samples& some, std::size_t rank) {
    if (!some.failure.empty()) {
      if (all.failure.empty() || rank == 0) all.failure = of_rank(rank, some.failure);
      all.ns.clear();
      return true;
    }
    all.ns.resize(std::min(all.ns.size(), some.ns.size()));
    for (std::size_t i = 0; i < all.ns.size(); ++i)
      all.ns[i] = is_time(some.ns[i]) ? std::max(all.ns[i], some.ns[i]) : some.ns[i];
    return false;
  }

  /// Of ranks that admitted a candidate which another rank rejected.
  void leave_out(std::size_t candidate) {
    drop(candidate);
    if (has_bucket_) tell({{"reset", true}});
  }

  std::vector<Samples> one_by_one(std::span<const Point> points, std::int64_t rounds) {
    std::vector<Samples> result;
    for (std::size_t i = 0; i < points.size(); ++i)
      result.push_back(std::move(sample(points.subspan(i, 1), rounds).front()));
    return result;
  }

  /// Has all ranks answer. Throws the error of the first rank that has one in its own process.
  Answers tell(const Json& message) {
    team::Member& team = trials_.team();
    team::broadcast_text(team.rendezvous(), team.rank(), process::packed(message));
    Answers answers = trials_.answer(message);
    if (answers.refused) throw Error(*answers.refused);
    has_bucket_ = has_bucket_ && answers.failure.empty();
    if (answers.failure.empty())
      for (const Json& each : answers.all) process::rethrow(each);
    return answers;
  }

  /// Has all ranks answer, once they hold the bucket and the candidates of `points`. Makes another attempt where a
  /// worker was killed from outside, a few at most. Workers hold memory beside the ranks' own: where that is too much
  /// for the bucket and any candidate, the ranks go on without. Later a lack of memory is one candidate's failure.
  Answers attempt(const Json& message, std::span<const Point> points = {}) {
    for (int left = most_attempts;;) {
      ready();
      Answers answers;
      if (!std::ranges::all_of(points, [&](const Point& each) { return admitted_.contains(each.candidate); })) {
        answers.failure = "it failed when it was brought in again, into other workers";
        return answers;
      }
      answers = tell(message);
      if (answers.lacks_memory && !was_admitted_)
        why_here_ = answers.failure;
      else if (!answers.was_killed || --left == 0)
        return answers;
    }
  }

  /// Makes sure that all ranks hold the bucket and the admitted candidates.
  void ready() {
    std::string failure;
    for (int attempt = 0; !has_bucket_; ++attempt) {
      if (attempt == most_attempts)
        throw Error(ErrorKind::driver_failed,
                    fmt::format("{}: the workers ended {} times in a row before candidates were in them again: {}", op_,
                                most_attempts, failure));
      begin();
      if (!sizes_.is_null()) failure = tell(sizes_).failure;
      for (auto each = admitted_.begin(); each != admitted_.end() && has_bucket_;) {
        const Answers answers = tell(each->second);
        failure = answers.failure;
        const bool is_in = failure.empty() && combined(answers.all).verdict == store::Verdict::ok;
        const bool stays = is_in || answers.was_killed;
        if (!stays) attempt = 0;  // each candidate is rejected once
        const std::size_t candidate = each->first;
        ++each;
        if (!stays) leave_out(candidate);
      }
    }
  }

  /// Sends the bucket to all ranks, in workers where they can have them.
  void begin() {
    for (int left = most_attempts; !has_bucket_;) {
      tell({{"workers", why_here_.empty() ? unique_team_name() : std::string()}, {"why", why_here_}});
      const Answers answers = tell(begin_);
      if (answers.failure.empty()) {
        for (const Json& each : answers.all) prepared_ns_ = std::max(prepared_ns_, prepared_ns_from_json(each));
        has_bucket_ = true;
      } else if (answers.lacks_memory) {
        why_here_ = answers.failure;
      } else if (!answers.was_killed || --left == 0) {
        throw Error(ErrorKind::driver_failed,
                    fmt::format("{}: a worker was not ready: it fills tensors and runs the reference first: {}", op_,
                                answers.failure));
      }
    }
  }

  RankTrials& trials_;
  team::Patience patience_;
  std::string op_;
  Json begin_, sizes_;
  bool has_bucket_ = false;    // all ranks do
  bool was_admitted_ = false;  // a candidate of this bucket
  std::string why_here_;  // this bucket's candidates run in the ranks' own processes; empty: not for want of memory
  double prepared_ns_ = 0;
  std::map<std::size_t, Json> admitted_;  // the messages by which candidates were admitted
};

/// Calls `work`. Where it throws, no end of the tune comes, and this rank drops what it holds of it.
template <class Work>
void or_abandon(RankTrials& trials, const Work& work) {
  try {
    work();
  } catch (...) {
    trials.abandon();
    throw;
  }
}

}  // namespace

std::unique_ptr<Bench> team_bench(const BenchSettings& settings, answer::Cubins& cubins, RankTrials& trials) {
  return std::make_unique<TeamBench>(settings, cubins, trials);
}

void end_team_trials(RankTrials& trials) {
  team::Member& team = trials.team();
  or_abandon(trials, [&] {
    team::broadcast_text(team.rendezvous(), team.rank(), process::packed({{"end", true}}));
    trials.end_tune();
  });
}

void serve_team_trials(RankTrials& trials, int tuning) {
  const team::Patience patience(trials.team().rendezvous());
  or_abandon(trials, [&] {
    for (;;) {
      const Json message = process::unpacked(team::broadcast_text(trials.team().rendezvous(), tuning, {}));
      if (message.contains("end")) return trials.end_tune();
      trials.answer(message);
    }
  });
}

}  // namespace kiln::tune
