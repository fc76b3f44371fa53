// MissPolicy::background: tunes buckets without a record one at a time, in the worker process, within a share of the
// GPU's time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "answer/cubins.hpp"
#include "engine/pacer.hpp"
#include "jit/compile_pool.hpp"
#include "kiln/engine.hpp"
#include "manifest/bucketing.hpp"
#include "plan/plan_state.hpp"

namespace kiln::engine {

struct EngineState;

class Background {
 public:
  explicit Background(EngineState& engine);
  /// Ends a running tune, whose bucket stays untuned.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Queues a bucket that has no record, once. The launches of `fallback`, which may be null, give its priority.
  void want(plan::OpState& op, const Problem& bucket, const plan::PlanState* fallback);
  /// Whether a queued bucket is tuned, and looked for in the shared store before.
  [[nodiscard]] bool can_tune() const noexcept { return has_worker_; }
  /// Waits until nothing is queued or being tuned. Returns false when `end` passed before.
  bool wait_until(std::chrono::steady_clock::time_point end);
  [[nodiscard]] std::int64_t waiting() const;  // buckets queued or being tuned
  /// Deletes `state`, which owns this, once this thread's tune has ended. Called on this thread, which cannot join
  /// itself, by what drops the last handle of the engine.
  void delete_at_end(EngineState& engine);
  [[nodiscard]] bool is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
  [[nodiscard]] std::int64_t compiled() const;                                  // specialisations
  [[nodiscard]] double spent_ns() const noexcept { return pacer_.spent_ns(); }  // device time, an upper bound

 private:
  using Clock = std::chrono::steady_clock;
  struct Wanted {
    plan::OpState* op = nullptr;
    Problem bucket;
    const plan::PlanState* fallback = nullptr;
    double expected_ns = 0;          // device time of one launch
    Clock::time_point not_before{};  // set where another process holds the lease
  };
  enum class End { done, held_elsewhere, stopped };
  /// Separate from the engine's pool, where a launch that waits for a fallback's compile would queue behind a tune's
  /// candidates.
  struct Compiling {
    explicit Compiling(EngineState& engine);
    jit::CompilePool pool;
    answer::Cubins cubins;
  };

  /// Begins the thread unless it runs or nothing is queued. Where the system refuses one, warns, and a later call tries
  /// again. Precondition: the mutex is held.
  void begin_thread();
  void serve_and_delete(const std::stop_token& stop);
  void serve(const std::stop_token& stop);
  bool take_next(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, Wanted& next);
  End tune(const Wanted& wanted, const std::stop_token& stop);
  /// tune(), but a failure becomes a warning.
  End try_to_tune(const Wanted& wanted, const std::stop_token& stop) noexcept;

  EngineState& engine_;
  const bool has_worker_;
  Pacer pacer_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::unique_ptr<Compiling> compiling_;  // made by the first want()
  std::deque<Wanted> queue_;
  /// The buckets of each op that were queued at any time: a failed one is not tried again.
  std::unordered_map<const plan::OpState*, std::unordered_set<Problem, manifest::ProblemHash>> seen_;
  bool busy_ = false;
  bool given_up_ = false;                  // there is no worker, or no compiler
  EngineState* deleted_at_end_ = nullptr;  // of this thread alone
  std::jthread thread_;                    // last: it ends before what it uses
};

}  // namespace kiln::engine
