// The plans of a bucket: one for each config among its answers, made when it is first needed.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/plan_state.hpp"
#include "engine/resolver.hpp"
#include "engine/retry.hpp"
#include "engine/size_table.hpp"

namespace kiln::engine {

/// The place of a plan: empty until the plan is made, or is known not to be makeable.
struct PlanSlot {
  explicit PlanSlot(const Answer& of) : answer(&of) {}
  /// The plan, if it was made. No lock, no allocation.
  [[nodiscard]] const PlanState* made() const noexcept {
    return settled.load(std::memory_order_acquire) ? plan.get() : nullptr;
  }
  const Answer* answer;
  std::mutex making;
  std::unique_ptr<PlanState> plan;
  std::atomic<bool> settled{false};  // the plan does not change any more
  Retry retry;                       // of one that could not be made for a moment
};

/// Answers, in the resolver's order, and their plans. Never freed while the op lives: who launches a plan notices nothing when its bucket gets others.
struct BucketPlans {
  explicit BucketPlans(Resolution resolved);
  BucketPlans(const BucketPlans&) = delete;
  BucketPlans& operator=(const BucketPlans&) = delete;

  [[nodiscard]] std::span<const Answer> answers() const noexcept { return resolution.answers; }
  [[nodiscard]] PlanSlot& slot(std::size_t answer) noexcept { return *slots_of_answers[answer]; }
  [[nodiscard]] const PlanSlot& slot(std::size_t answer) const noexcept { return *slots_of_answers[answer]; }
  /// The slots of the answers whose regions hold the problem, in order, each once. From behind `refused` on, when it is one of them.
  [[nodiscard]] std::vector<PlanSlot*> slots_for(const manifest::Op& op, const Problem& problem,
                                                 const PlanState* refused = nullptr);
  /// The answer that serves a problem of the bucket, as far as sizes and what can be made tell, and the first that sizes alone pick, with why
  /// that one does not serve.
  struct Served {
    std::size_t index = 0;  // of the answer; as many as there are where none serves
    const Answer* first = nullptr;
    std::string refused;  // empty where the first serves
  };
  /// From the given answer on; `own_only`: of those that need no library.
  [[nodiscard]] Served served(const manifest::Op& op, const manifest::DeviceFacts& device, const Problem& problem,
                              bool own_only = false, std::size_t from = 0) const;
  /// The plans that launches by size find, each once, and those that were made besides.
  [[nodiscard]] std::vector<const PlanState*> made() const;
  /// Whether launches on the stream find the workspaces of all plans that they pick by size.
  [[nodiscard]] bool serves(CUstream stream) const noexcept;
  /// The stream's workspaces of all plans that are made, so that a capture finds them. Throws as Workspaces::make does.
  void make_workspaces(CUstream stream) const;
  /// Workspaces for the streams that `others` has or noted, so that no launch after a swap has to.
  void make_workspaces_as(const Workspaces& others) const;

  Resolution resolution;
  std::deque<PlanSlot> slots;
  std::vector<PlanSlot*> slots_of_answers;
  std::optional<SizeTable> sizes;     // once it is loaded
  const PlanState* edge = nullptr;    // at the bucket's upper edge: what the hot table holds
  std::atomic<bool> is_stale{false};  // a stale plan of it was made and counted
};

}  // namespace kiln::engine
