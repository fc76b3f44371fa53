// Compiles, on idle cores, machine code that no launch waits for: of the buckets that are likely next where one had
// none (answer/next_buckets.hpp), of those that a stand-in serves meanwhile, and of defaults that may stand in for any
// sizes (engine/stand_in.hpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "answer/next_buckets.hpp"
#include "jit/compile_pool.hpp"
#include "manifest/bucketing.hpp"
#include "plan/plan_state.hpp"

namespace kiln::plan {
struct BucketPlans;
struct OpState;
}  // namespace kiln::plan

namespace kiln::engine {

struct EngineState;

/// Thread-safe. Its compiles are jit::Urgency::spare in the engine's pool: a launch that needs one of them takes it
/// over. The thread begins with the first bucket whose machine code is missing, so an engine whose files hold all has
/// none.
class Ahead {
 public:
  explicit Ahead(EngineState& engine) : engine_(engine) {}
  /// Stops compiles that run, and those that wait.
  ~Ahead();
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  /// Notes that the bucket's plans were made. Does nothing for an op whose machine code was never missing.
  void met(plan::OpState& op, const Problem& bucket);
  /// Queues what is likely next after a bucket whose machine code a launch waits for, and its default before that.
  void want_near(plan::OpState& op, const Problem& bucket);
  /// Queues the bucket of a stand-in before all others. Its own answers take the stand-in's place, each when it is
  /// compiled.
  void want_swap(plan::OpState& op, const Problem& bucket);
  /// Queues what launches left to the background (plan::PlanSlot::is_left), before all but stand-ins. Then makes it.
  void want_left(plan::OpState& op, plan::BucketPlans& plans);
  /// Waits until nothing is queued or compiled. Returns false when `end` passed before.
  bool wait_until(std::chrono::steady_clock::time_point end);
  /// As Background's: for the thread of this, on which a callback dropped the engine's last handle.
  void delete_at_end(EngineState& engine);
  [[nodiscard]] bool is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
  [[nodiscard]] bool is_running() const;

 private:
  struct OfOp {
    std::vector<Problem> met;  // the latest at the back
    bool lacks_code = false;
    std::unordered_set<Problem, manifest::ProblemHash> seen;     // queued, or met
    std::unordered_set<Problem, manifest::ProblemHash> asked;    // whose next buckets were queued
    std::unordered_set<Problem, manifest::ProblemHash> swapped;  // whose stand-ins were queued
    std::optional<std::vector<answer::BucketCount>> counted;     // by the files; of the thread alone
  };
  struct Missed {
    plan::OpState* op = nullptr;
    Problem bucket;
    std::int64_t number = 0;
  };
  struct Wanted {
    plan::OpState* op = nullptr;
    Problem bucket;
    int rank = 0;             // answer::NextBucket::rank; of what a launch has asked for: below all
    std::int64_t number = 0;  // of the miss that it follows: of equal ranks the latest comes first
    bool has_stand_in = false;
    bool is_default = false;            // of the bucket its default alone (default_to_stand_in)
    plan::BucketPlans* left = nullptr;  // null: not of want_left()
    [[nodiscard]] bool is_asked_for() const noexcept { return has_stand_in || left != nullptr; }
  };
  struct Compile {
    jit::Specialisation code;
    std::shared_future<jit::Cubin> cubin;
    bool is_kept = false;
  };
  struct Begun {
    Wanted of;
    std::vector<Compile> compiles;
    int tries = 0;  // to replace the stand-in, which failed for now
    std::chrono::steady_clock::time_point not_before{};
  };
  enum class Replaced : std::uint8_t { yes, no, not_now };

  // Precondition of these: the mutex is held.
  void note(plan::OpState& op, const Problem& bucket);
  /// Wakes the thread, or begins it. Where the system refuses one, a later call tries again.
  void begin_thread();
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] bool may_begin() const;
  [[nodiscard]] bool is_asked() const { return !missed_.empty() || may_begin(); }
  Wanted take_next();

  // The thread's work, without the mutex.
  void serve_and_delete(const std::stop_token& stop);
  void serve(const std::stop_token& stop);
  /// One piece of work, with `lock` released meanwhile. Returns false where there is none.
  bool work(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  void queue_near(const Missed& missed);
  std::vector<Compile> begin(const Wanted& wanted) noexcept;
  /// Keeps what is compiled, and has it serve unless `stop`. Returns whether all is compiled.
  bool finish(Begun& begun, const std::stop_token& stop) noexcept;
  /// not_now: a later try may succeed. Warns where it gives up.
  Replaced replace(const Wanted& wanted, bool gives_up) noexcept;
  void replace_in_part(const Wanted& wanted) noexcept;
  void make_left(const Wanted& wanted) noexcept;

  EngineState& engine_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::unordered_map<plan::OpState*, OfOp> ops_;
  std::deque<Missed> missed_;  // what is likely next is not queued yet
  std::int64_t misses_ = 0;
  std::vector<Wanted> queue_;
  std::vector<Begun> begun_;  // written by the thread alone
  bool busy_ = false;
  EngineState* deleted_at_end_ = nullptr;  // of the thread alone
  std::jthread thread_;                    // last: it ends before what it uses
};

}  // namespace kiln::engine
