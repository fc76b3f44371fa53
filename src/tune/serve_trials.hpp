// Answers tune messages, in a worker process or on a rank of a team.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "team/member.hpp"

namespace kiln::tune {

class TrialService {
 public:
  TrialService();
  /// For ops of a team, on this rank's device.
  TrialService(team::Member& team, int device);
  ~TrialService();
  TrialService(const TrialService&) = delete;
  TrialService& operator=(const TrialService&) = delete;

  /// Answers a bucket with "ready" once its tensors are filled and its reference has run, and a trial in it with the
  /// result. {"team"} makes it a rank of a team of workers, {"nccl"} opens NCCL there, {"reset"} resets the team, and
  /// {"forget"} frees the bucket. Throws as local_bench() and its bench do, as kiln::Team's constructor and
  /// team::Member do, and Error(no_nccl).
  nlohmann::json answer(const nlohmann::json& message);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::tune
