// What is asked of a tune.
#pragma once

#include <functional>
#include <string>

#include "cuda/device.hpp"
#include "kiln/options.hpp"
#include "manifest/site.hpp"
#include "tune/rank_trials.hpp"
#include "tune/worker.hpp"

namespace kiln::tune {

struct TuneRequest {
  manifest::Bucket bucket;
  const cuda::DeviceInfo& device;  // of which bucket.device are facts
  std::string arch;                // "sm_90a"
  SearchSettings search{};
  Worker* worker = nullptr;  // null: candidates run in the current context
  /// For an op of a team: candidates run on all ranks, the others within serve_team_trials(). `worker` is not used.
  RankTrials* team = nullptr;
  std::function<bool()> stop_requested;
  std::function<void(const TuneEvent&)> on_event;
  /// Called after each piece of device work with its duration in nanoseconds by the host's clock. A background tune
  /// sleeps here.
  std::function<void(double)> pace{};
};

}  // namespace kiln::tune
