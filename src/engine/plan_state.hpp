// A plan as the engine keeps it: an answer made ready, with its workspaces.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/resolver.hpp"
#include "engine/size_table.hpp"
#include "engine/workspaces.hpp"
#include "jit/executable.hpp"
#include "kiln/engine.hpp"

namespace kiln::engine {

struct BucketPlans;

struct PlanState {
  PlanState(BucketPlans& bucket_plans, const Problem& of_bucket, const Answer& made_ready, jit::Executable loaded)
      : executable(std::move(loaded)),
        origin(made_ready.origin),
        bucket(of_bucket),
        of(bucket_plans),
        answer(made_ready),
        config(manifest::to_string(*answer.implementation, answer.config)),
        workspaces(std::make_unique<Workspaces>(executable.workspace_bytes(), !executable.zeroed_ranges().empty())) {}

  /// Of the plan that the hot table holds: the plan that serves a problem of the bucket. No lock, no allocation.
  [[nodiscard]] const PlanState& at(const Problem& problem) const noexcept {
    return sizes == nullptr ? *this : SizeTable::pick(sizes, problem);
  }

  /// What its next launch counts as: the first of a hit as overlay or base, later ones as hot.
  [[nodiscard]] Origin count_as() const noexcept {
    const Origin counted = counts_as.load(std::memory_order_relaxed);
    if (counted != Origin::hot) [[unlikely]] {
      if (counted == Origin::overlay || counted == Origin::base)  // of threads that are here at once, one is the first
        return counts_as.exchange(Origin::hot, std::memory_order_relaxed);
    }
    return counted;
  }
  /// It was not made: the next one is the first, if this one was.
  void take_back(Origin counted) const noexcept {
    if (counted != Origin::hot) counts_as.store(counted, std::memory_order_relaxed);
  }

  // What launches read; the executable is laid out for them too.
  jit::Executable executable;
  const std::uint64_t* sizes = nullptr;  // of the plan that the hot table holds, where several serve: SizeTable::words
  Origin origin;
  mutable std::atomic<Origin> counts_as{origin};

  Problem bucket;
  BucketPlans& of;
  const Answer& answer;
  std::string config;
  std::unique_ptr<Workspaces> workspaces;
  /// Of a stand-in: its launches, one in Histogram::stride. On a line of its own: the others are read at each launch.
  alignas(64) mutable std::atomic<std::int64_t> samples{0};
};

}  // namespace kiln::engine
