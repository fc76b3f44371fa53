// A plan: an answer's loaded executable and the workspaces that it needs. A kiln::Plan holds that of its bucket's edge,
// which at() leads on to the others.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "answer/resolver.hpp"
#include "jit/executable.hpp"
#include "kiln/engine.hpp"
#include "manifest/bucketing.hpp"
#include "plan/size_table.hpp"
#include "plan/workspaces.hpp"

namespace kiln::plan {

struct BucketPlans;

struct PlanState {
  PlanState(BucketPlans& bucket_plans, const Problem& of_bucket, const manifest::BucketForm& form,
            const answer::Answer& made_ready, jit::Executable loaded)
      : executable(std::move(loaded)),
        origin(made_ready.origin),
        words(form.words_of(of_bucket).words),
        bucket(of_bucket),
        of(bucket_plans),
        answer(made_ready),
        config(manifest::to_string(*answer.implementation, answer.config)) {}

  /// Called on the plan that the hot table holds. Returns the plan that serves the problem's sizes, null where it is
  /// not made yet. No lock, no allocation.
  [[nodiscard]] const PlanState* at(const Problem& problem) const noexcept {
    return sizes == nullptr ? this : SizeTable::pick(sizes, problem);
  }
  /// The same, and this plan where that is not made yet.
  [[nodiscard]] const PlanState& made_at(const Problem& problem) const noexcept {
    const PlanState* const plan = at(problem);
    return plan == nullptr ? *this : *plan;
  }

  /// The origin that the next launch counts as: overlay or base for a hit's first launch, hot for later ones.
  [[nodiscard]] Origin count_as() const noexcept {
    const Origin counted = counts_as.load(std::memory_order_relaxed);
    if (counted != Origin::hot) [[unlikely]] {
      if (counted == Origin::overlay || counted == Origin::base)  // one of several threads here gets the first
        return counts_as.exchange(Origin::hot, std::memory_order_relaxed);
    }
    return counted;
  }
  /// Undoes count_as for a launch that failed.
  void take_back(Origin counted) const noexcept {
    if (counted != Origin::hot) counts_as.store(counted, std::memory_order_relaxed);
  }

  // Members that launches read come first, in the order of their use.
  jit::Executable executable;
  const std::uint64_t* sizes =
      nullptr;  // SizeTable::words, in the plan that the hot table holds; null where one plan serves all
  Origin origin;
  mutable std::atomic<Origin> counts_as{origin};
  WorkspaceNeeds needs{executable.workspace_bytes(), executable.zeroed_bytes()};

  decltype(manifest::BucketWords::words) words;  // of `bucket`
  Problem bucket;
  BucketPlans& of;
  const answer::Answer& answer;
  std::string config;
  /// Samples of a fallback's launches, one in Histogram::stride. On its own cache line: each launch reads the others.
  alignas(64) mutable std::atomic<std::int64_t> samples{0};
};

}  // namespace kiln::plan
