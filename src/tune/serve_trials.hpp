// The worker's side of a tune.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

namespace kiln::tune {

class TrialService {
 public:
  TrialService();
  ~TrialService();
  TrialService(const TrialService&) = delete;
  TrialService& operator=(const TrialService&) = delete;

  /// To a bucket: ready, once its tensors are filled and its reference was run. To a trial in it: the result. Throws what
  /// local_bench and its bench throw.
  nlohmann::json answer(const nlohmann::json& message);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::tune
