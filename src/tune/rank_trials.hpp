// One rank's part in the trials of a team: its candidates run in a worker process, or in this process.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "process/child.hpp"
#include "team/member.hpp"
#include "tune/serve_trials.hpp"
#include "tune/worker.hpp"

namespace kiln::tune {

struct RankTrialSettings {
  std::filesystem::path program;  // kiln-worker; empty: none, and `why_none` says why
  std::string why_none;
  WorkerTimeouts limits;
  std::function<void(const std::string&)> on_news;  // told why candidates run in this process, once for each reason
  bool is_required = false;                         // Isolation::worker: a tune without workers is refused on all ranks
};

/// The workers of all ranks form a team of their own, with memory of its own. They are begun together and ended
/// together, and run until stop() or the end. All ranks decide from what all ranks answered, so they decide the same.
///
/// Its calls are collective: each rank makes the same calls in the same order, with equal messages. They throw as
/// team::Rendezvous does.
class RankTrials {
 public:
  RankTrials(team::Member& team, int device, RankTrialSettings settings);
  ~RankTrials();
  RankTrials(const RankTrials&) = delete;
  RankTrials& operator=(const RankTrials&) = delete;

  [[nodiscard]] team::Member& team() const noexcept { return team_; }
  /// The ranks' communicator; the workers have one where they do.
  [[nodiscard]] const team::NcclCommunicator* nccl() const noexcept { return team_.nccl(); }

  struct Answers {
    std::vector<nlohmann::json> all;  // by rank; unless there is a failure
    std::string failure;              // why all workers were ended; empty: they were not, or none ran
    bool was_killed = false;          // a worker, from outside, which is no candidate's doing
    bool lacks_memory = false;        // a worker ran out of device memory, and no failure of a candidate is known
    std::optional<Error> refused;     // there are no workers, and a rank requires them
  };
  /// Answers {"workers": NAME} by beginning the workers, as a team of that name, unless all of them run. If a rank
  /// cannot have one, all ranks answer the following messages in their own processes. They do so too if NAME is empty,
  /// for the lack of memory "why". TrialService answers any other message. An error in a rank's own process is its
  /// answer. What may pass is asked again in the next tune.
  Answers answer(const nlohmann::json& message);
  /// Frees what this process and its worker hold of the last bucket. Not collective.
  void end_tune();
  /// Ends the worker, and so frees its memory. The next tune begins another one. Not collective.
  void stop();
  /// end_tune() and stop(), where a collective has failed and no end of the tune is to come.
  void abandon();

 private:
  using Json = nlohmann::json;

  Answers seek_workers(const std::string& name);
  /// Begins all workers as a team. Returns why a rank has none.
  Json try_to_begin(const std::string& name);
  void join(const std::string& name);
  /// Returns why `step` failed, as {"why", "kind", "killed"}: the first rank's reason that is not another rank's
  /// failure. "why" is empty where it failed on none.
  Json first_failure(const std::function<void()>& step);
  [[nodiscard]] std::vector<Json> gather(const Json& own) const;
  Answers run_here(const std::string& why, ErrorKind kind);

  /// What the worker answered, {"error"}, or {"lost", "late", "killed"} where it ended or was late.
  Json asked(const Json& message);
  Json answered_here(const Json& message);
  void judge(Answers& answers, bool is_trial);

  team::Member& team_;
  int device_;
  RankTrialSettings settings_;
  std::string why_never_;     // no worker is sought: this rank can have none
  Json why_not_now_;          // nor is one in this tune, for a failure of any rank; null: there was none
  bool is_required_ = false;  // by any rank
  std::set<std::string> told_;
  std::string name_;                      // of the workers' team
  std::optional<process::Child> worker_;  // on all ranks, or on none, during a tune
  std::optional<TrialService> here_;
};

/// "on rank 1: ..."
std::string of_rank(std::size_t rank, const std::string& text);

}  // namespace kiln::tune
