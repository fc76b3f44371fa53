// The plans of a bucket: one for each config among its answers, made when it is first needed.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answer/resolver.hpp"
#include "plan/plan_state.hpp"
#include "plan/size_table.hpp"

namespace kiln::plan {

/// When an action that failed is tried again: after each failure the pause doubles. Launches within a pause do not pay
/// for a try. A plan that a later try makes is in the bucket's SizeTable only where PlanStore::load_for() made it. Else
/// launch_next(), plan_with_lengths() and captures alone reach it.
class Retry {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds first_pause{100}, longest_pause{60'000};

  [[nodiscard]] bool is_due(Clock::time_point now) const noexcept {
    return now >= not_before_.load(std::memory_order_relaxed);
  }
  /// One thread at a time.
  void failed(Clock::time_point now) noexcept {
    not_before_.store(now + pause_, std::memory_order_relaxed);
    pause_ = std::min(2 * pause_, longest_pause);
  }

 private:
  std::atomic<Clock::time_point> not_before_{Clock::time_point::min()};
  std::chrono::milliseconds pause_ = first_pause;
};

/// A plan that is made when it is first needed, or is found to be impossible to make.
struct PlanSlot {
  explicit PlanSlot(const answer::Answer& of) : answer(&of) {}
  /// Returns the plan if it was made, else null. No lock, no allocation.
  [[nodiscard]] const PlanState* made() const noexcept {
    return settled.load(std::memory_order_acquire) ? plan.get() : nullptr;
  }
  const answer::Answer* answer;
  std::mutex making;
  std::unique_ptr<PlanState> plan;
  std::atomic<bool> settled{false};  // `plan` does not change any more; null: it cannot be made
  Retry retry;                       // of a failure that may pass
  std::atomic<bool> is_left{false};  // the background compiles its machine code (PlanStore::Code::beside)
};

/// Whether one plan serves both answers of a bucket.
bool is_same(const answer::Answer& a, const answer::Answer& b);

/// A bucket's answers, in the resolver's order, and their plans. Lives as long as the op: a launch may still use plans
/// that were replaced.
struct BucketPlans {
  explicit BucketPlans(answer::Resolution resolved, std::optional<std::size_t> stands_in = {});
  BucketPlans(const BucketPlans&) = delete;
  BucketPlans& operator=(const BucketPlans&) = delete;

  [[nodiscard]] std::span<const answer::Answer> answers() const noexcept { return resolution.answers; }
  [[nodiscard]] PlanSlot& slot(std::size_t answer) noexcept { return *slots_of_answers[answer]; }
  [[nodiscard]] const PlanSlot& slot(std::size_t answer) const noexcept { return *slots_of_answers[answer]; }
  /// The slots of the answers whose regions hold the problem, in order, each once. If that of `refused` is among them,
  /// only those after it.
  [[nodiscard]] std::vector<PlanSlot*> slots_for(const Problem& problem, const PlanState* refused = nullptr);
  /// Whether the plan that serves the problem is made, or found to be impossible with all others of its sizes.
  [[nodiscard]] bool is_settled_for(const Problem& problem);
  /// Resolution::first() among the answers from `from` on whose plans were not found to be impossible; `own_only`:
  /// among those that need no library.
  [[nodiscard]] answer::Resolution::First first(const Problem& problem, bool own_only = false,
                                                std::size_t from = 0) const;
  /// All plans made so far, each once.
  [[nodiscard]] std::vector<const PlanState*> made() const;
  /// The workspace that serves each of the plans made so far.
  [[nodiscard]] WorkspaceNeeds needs() const;

  answer::Resolution resolution;
  std::deque<PlanSlot> slots;
  std::vector<PlanSlot*> slots_of_answers;
  std::optional<SizeTable> sizes;          // set by PlanStore::load and load_for
  const PlanState* edge = nullptr;         // the plan of the bucket's edge, which the hot table and kiln::Plan hold
  std::atomic<bool> lacks_code{false};     // a compile was needed, and all have begun
  std::atomic<bool> meets_refused{false};  // the driver refuses what files have of its machine code
  bool is_published = false;               // the hot table has or had it; guarded by PlanStore's mutex
  std::atomic<bool> is_followed{false};    // what the background does for it is queued (engine/miss_path.hpp)
  /// Index of the answer that serves until the machine code of the bucket's own is made (engine/stand_in.hpp).
  const std::optional<std::size_t> stand_in;
};

}  // namespace kiln::plan
