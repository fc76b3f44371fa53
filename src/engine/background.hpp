// MissPolicy::background: buckets that a stand-in serves are tuned one at a time, in the worker process, within a share of the GPU's time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/pacer.hpp"
#include "engine/plan_state.hpp"
#include "jit/compile_pool.hpp"
#include "manifest/problem.hpp"
#include "tune/cubins.hpp"

namespace kiln::engine {

struct State;
struct OpState;

class Background {
 public:
  explicit Background(State& engine);
  /// Ends a tune that is under way; what it had not finished is lost, and nothing else.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Queues a bucket that has no record, once however often it is asked for. `stand_in` says how much it is wanted, by its launches;
  /// null when nothing can stand in.
  void want(OpState& op, const Problem& bucket, const PlanState* stand_in);
  /// Waits until nothing is queued or being tuned. False when the time is over before that.
  bool wait(std::chrono::milliseconds limit);
  [[nodiscard]] std::int64_t waiting() const;  // buckets queued or being tuned
  [[nodiscard]] bool is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
  [[nodiscard]] std::int64_t compiled() const;                                  // specialisations
  [[nodiscard]] double spent_ns() const noexcept { return pacer_.spent_ns(); }  // of the device's time, at most

 private:
  using Clock = std::chrono::steady_clock;
  struct Wanted {
    OpState* op = nullptr;
    Problem bucket;
    const PlanState* stand_in = nullptr;
    double expected_ns = 0;          // of one launch
    Clock::time_point not_before{};  // another process holds the lease
  };
  enum class End { done, held_elsewhere, stopped };
  /// Apart from the engine's own pool, where a stand-in that a launch waits for would stand behind a tune's candidates.
  struct Compiling {
    explicit Compiling(State& engine);
    jit::CompilePool pool;
    tune::Cubins cubins;
  };

  void serve(const std::stop_token& stop);
  bool take_next(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, Wanted& next);
  End tune(const Wanted& wanted, const std::stop_token& stop);
  /// The same; a failure becomes a warning.
  End try_to_tune(const Wanted& wanted, const std::stop_token& stop);

  State& engine_;
  const bool has_worker_;
  Pacer pacer_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::unique_ptr<Compiling> compiling_;  // from the first want on
  std::deque<Wanted> queue_;
  std::deque<std::pair<const OpState*, Problem>> seen_;  // queued at any time: a failed one is not tried again
  bool busy_ = false;
  bool given_up_ = false;  // there is no worker, or no compiler
  std::jthread thread_;    // last: it ends before what it uses
};

}  // namespace kiln::engine
