#include "tune/team_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kiln/error.hpp"
#include "process/message.hpp"
#include "team/exchange.hpp"
#include "tune/serve_trials.hpp"
#include "tune/verification_code.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {
namespace {

using Json = nlohmann::json;

/// Does what the message asks on this rank, and returns what each rank answers.
std::vector<Json> answer_together(team::Member& team, TrialService& service, const Json& message) {
  Json own;
  try {
    if (message.contains("reset"))
      team.reset();
    else
      own = service.answer(message);
  } catch (const Error& error) {
    own = process::to_json(error);
  } catch (const std::exception& error) {
    own = process::to_json(Error(ErrorKind::io, error.what()));
  }
  std::vector<Json> answers;
  for (const std::string& each : team::gather_texts(team.rendezvous(), process::packed(own)))
    answers.push_back(process::unpacked(each));
  return answers;
}

std::string of_rank(std::size_t rank, const std::string& text) { return fmt::format("on rank {}: {}", rank, text); }

class TeamBench final : public Bench {
 public:
  TeamBench(const BenchSettings& settings, answer::Cubins& cubins)
      : team_(*settings.member), patience_(team_.rendezvous()), service_(team_, settings.device.ordinal) {
    Json begin = to_json(settings, verification_rows(settings.bucket, settings.arch, cubins));
    begin["seed"] = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    for (const Json& each : ask(begin)) prepared_ns_ = std::max(prepared_ns_, prepared_ns_from_json(each));
  }

  void set_sizes(std::vector<Problem> sizes) override { ask({{"lengths", to_json(std::span<const Problem>(sizes))}}); }

  Admission admit(std::size_t candidate, const Trial& trial) override {
    const std::vector<Json> answers = ask(to_json(candidate, trial));
    Admission all = admission_from_json(answers.front());
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      const Admission each = admission_from_json(answers[rank]);
      all.registers = std::max(all.registers, each.registers);
      all.spill_bytes = std::max(all.spill_bytes, each.spill_bytes);
      if (each.verdict == store::Verdict::ok || (all.verdict != store::Verdict::ok && rank > 0)) continue;
      all.verdict = each.verdict;
      all.reason = of_rank(rank, each.reason);
    }
    if (all.verdict == store::Verdict::ok) return all;
    drop(candidate);  // by ranks that admitted it
    ask({{"reset", true}});
    return all;
  }

  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    const std::vector<Json> answers = ask({{"sample", to_json(points)}, {"rounds", rounds}});
    std::vector<Samples> all = samples_from_json(answers.front(), points.size());
    bool has_failed = false;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      const std::vector<Samples> some = samples_from_json(answers[rank], points.size());
      for (std::size_t i = 0; i < all.size(); ++i) has_failed = add(all[i], some[i], rank) || has_failed;
    }
    if (has_failed) ask({{"reset", true}});
    return all;
  }

  /// The length of a chain would follow from a rank's own times, so single launches are sampled.
  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return sample(points, rounds);
  }

  void drop(std::size_t candidate) override { ask({{"drop", candidate}}); }

  [[nodiscard]] double prepared_ns() const override { return prepared_ns_; }

 private:
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

  /// Returns each rank's answer. Throws the error of the first rank that has one.
  std::vector<Json> ask(const Json& message) {
    team::broadcast_text(team_.rendezvous(), team_.rank(), process::packed(message));
    std::vector<Json> answers = answer_together(team_, service_, message);
    for (const Json& each : answers) process::rethrow(each);
    return answers;
  }

  team::Member& team_;
  team::Patience patience_;
  TrialService service_;
  double prepared_ns_ = 0;
};

}  // namespace

std::unique_ptr<Bench> team_bench(const BenchSettings& settings, answer::Cubins& cubins) {
  return std::make_unique<TeamBench>(settings, cubins);
}

void end_team_trials(team::Member& team) {
  team::broadcast_text(team.rendezvous(), team.rank(), process::packed({{"end", true}}));
}

void serve_team_trials(team::Member& team, int tuning, const cuda::Context& context) {
  const team::Patience patience(team.rendezvous());
  TrialService service(team, context.info().ordinal);
  for (;;) {
    const Json message = process::unpacked(team::broadcast_text(team.rendezvous(), tuning, {}));
    if (message.contains("end")) return;
    answer_together(team, service, message);
  }
}

}  // namespace kiln::tune
