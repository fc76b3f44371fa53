// The state behind kiln::Engine: engine.cpp, and miss_path.cpp for launch_cold().
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/compile_pool.hpp"
#include "jit/module.hpp"
#include "kiln/engine.hpp"
#include "manifest/catalogue.hpp"
#include "plan/op_state.hpp"
#include "plan/owner.hpp"
#include "store/layers.hpp"
#include "team/member.hpp"
#include "tune/rank_trials.hpp"
#include "tune/tune_bucket.hpp"
#include "tune/worker.hpp"

namespace kiln::engine {

class Ahead;
class Background;
class SharedAnswers;

/// Why candidates run in this process though kiln-worker is here; empty where they do not.
std::string why_no_worker(const Options& options, const cuda::DeviceInfo& device);
/// The worker process for candidates; null: they run in this process. Throws Error(bad_input) where Isolation::worker
/// finds no kiln-worker, or a GPU that one process at a time may use.
std::unique_ptr<tune::Worker> worker_for(const Options& options, const cuda::DeviceInfo& device);
jit::CompileSettings compile_settings(const Options& options);

struct EngineState final : plan::Owner {
  explicit EngineState(const Options& chosen);
  /// Adds its counts to the overlay.
  ~EngineState() override;
  Origin launch_cold(plan::OpState& op, const plan::Call& call) override;
  void refuse_wait(const manifest::Bucket& bucket) const override;
  void lacks_code(const manifest::Op& op, const Problem& bucket) override;
  bool compiles_beside(const manifest::Op& op, plan::BucketPlans& plans) noexcept override;
  /// A request to tune a bucket on this device with this engine's options. Refers to `op`. Without a worker, which
  /// tunes may replace: who holds tune_mutex adds it.
  [[nodiscard]] tune::TuneRequest tune_request(const manifest::Op& op, const Problem& edge) const;
  /// The state of `ops[index]`, made at the first call for it. Throws as reading the op's manifest does.
  plan::OpState& op_state(std::size_t index);
  /// Calls `visit` with the states made so far.
  void for_each_op(const std::function<void(plan::OpState&)>& visit);

  std::unique_ptr<tune::Worker> worker;  // runs candidates; null: this process does
  /// This rank's part in tunes of its team; null before the first. Who holds the team's collectives() uses it.
  std::unique_ptr<tune::RankTrials> rank_trials;
  std::atomic<int> keeps_trial_workers = 0;  // KeptTrialWorkers alive
  std::mutex tune_mutex;                     // one tune at a time: two would disturb each other's timings
  std::string holder;                        // this process and engine, in leases
  std::atomic<bool> is_behind = false;       // what the background does for a bucket could not be queued (catch_up)
  /// Null except under MissPolicy::background. ~EngineState ends it first: its thread uses the other members.
  std::unique_ptr<Background> background;
  /// Null where nothing is compiled ahead. Ended after `background`, for the same reason.
  std::unique_ptr<Ahead> ahead;
  /// The store that machines share; null: none is named. Ended between the two.
  std::unique_ptr<SharedAnswers> shared;

 private:
  struct OpSlot {
    std::once_flag made;                   // threads that ask for another op do not wait
    std::unique_ptr<plan::OpState> state;  // null until it is asked for
  };
  std::mutex op_states_mutex_;     // guards the `state` of each slot
  std::vector<OpSlot> op_states_;  // in the order of `ops`
};

/// The engine of an op's state.
inline EngineState& engine_of(const plan::OpState& op) { return static_cast<EngineState&>(op.owner); }

/// Calls `work` on a thread of its own. Where the system refuses one, never.
void call_elsewhere(std::function<void()> work) noexcept;

/// Deletes the state. A callback may drop the last Engine, Op or Plan on a thread of the engine, which cannot join
/// itself. The thread that tunes in the background deletes the state when its tune has ended; where the callback is
/// that of a compile, another thread does.
void destroy(EngineState* engine);
template <class Owned>
void destroy(Owned* owned) {
  if (jit::CompilePool::is_compiling())
    call_elsewhere([owned] { delete owned; });
  else
    delete owned;
}

/// std::make_shared, whose object is never destroyed in a forked child (cuda::is_forked). There its threads cannot be
/// joined, its processes and leases are the parent's, and its locks may be held for ever.
template <class Owned, class... Given>
std::shared_ptr<Owned> make_owned(Given&&... given) {
  auto made = std::make_unique<Owned>(std::forward<Given>(given)...);
  return {made.release(), [](Owned* owned) {
            if (!cuda::is_forked()) destroy(owned);
          }};
}

}  // namespace kiln::engine
