// A plan as the engine keeps it: the executable, where it came from, its workspaces, its fallbacks.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "engine/lookup.hpp"
#include "engine/retry.hpp"
#include "jit/executable.hpp"
#include "kiln/engine.hpp"

namespace kiln::engine {

/// Device memory for one plan's workspace, one block a stream. Reading takes no lock, and nothing is ever enqueued on those streams.
class Workspaces {
 public:
  explicit Workspaces(std::int64_t bytes, bool zeroed) : bytes_(bytes), zeroed_(zeroed) {}
  /// The stream's block, or 0 when it has none yet.
  [[nodiscard]] CUdeviceptr find(CUstream stream) const noexcept;
  /// Whether a launch on the stream finds all that it needs.
  [[nodiscard]] bool serves(CUstream stream) const noexcept { return bytes_ == 0 || find(stream) != 0; }
  /// Makes one in the current context when there is none; one of no bytes notes the stream. Not for a capturing stream, on which nothing
  /// is allocated. Throws Error(out_of_memory).
  CUdeviceptr make(CUstream stream);
  /// One for each stream that `other` has or noted.
  void make_as(const Workspaces& other);
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  /// A stream's handle; thread_stream() for a thread's own default stream.
  using Key = std::uintptr_t;
  struct Block {
    Key stream;
    cuda::Buffer buffer;
    Block* next;
  };
  [[nodiscard]] const Block* block_of(Key stream) const noexcept;
  CUdeviceptr make_keyed(Key stream);

  std::int64_t bytes_;
  bool zeroed_;
  std::mutex mutex_;
  std::deque<Block> blocks_;
  std::atomic<Block*> head_{nullptr};
};

/// Of a bucket, or of one part of a bucket that is split.
struct PlanState {
  PlanState(Problem bucket_of_plan, jit::Executable loaded, Origin from)
      : executable(std::move(loaded)),
        origin(from),
        bucket(bucket_of_plan),
        workspaces(std::make_unique<Workspaces>(executable.workspace_bytes(), !executable.zeroed_ranges().empty())) {}

  /// The part of the bucket that a problem of it lies in: a lower part's plan, or this one. No lock, no allocation.
  [[nodiscard]] const PlanState& at(const Problem& problem) const noexcept {
    for (const LowerPart& part : lower_parts)
      if (problem.axes[split_axis] <= part.edge) return *part.plan;
    return *this;
  }
  /// Whether launches on the stream find all parts' workspaces.
  [[nodiscard]] bool serves(CUstream stream) const noexcept;
  /// The stream's workspaces of all parts, so that a capture finds them. Throws as Workspaces::make does.
  void make_workspaces(CUstream stream) const;
  /// Those of the streams that others serve or noted, so that no launch after a swap has to.
  void make_workspaces_as(const Workspaces& others) const;

  struct LowerPart {
    std::int64_t edge;
    std::unique_ptr<PlanState> plan;
  };

  /// Of a library's plan, what serves where the library does not. Made when that is first asked for (OpState::runner_up).
  struct RunnerUp {
    explicit RunnerUp(Lookup of) : lookup(std::move(of)) {}
    Lookup lookup;
    std::mutex making;
    std::unique_ptr<PlanState> plan;   // null for one that cannot be made, or could not be so far
    std::atomic<bool> settled{false};  // the plan does not change any more
    Retry retry;                       // of one that could not be made for a moment
  };
  /// It, if it is made. No lock, no allocation.
  [[nodiscard]] const PlanState* made_runner_up() const noexcept {
    const bool settled = runner_up != nullptr && runner_up->settled.load(std::memory_order_acquire);
    return settled ? runner_up->plan.get() : nullptr;
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
  std::vector<LowerPart> lower_parts;  // of a bucket that is split, by edge
  std::size_t split_axis = 0;
  Origin origin;
  mutable std::atomic<Origin> counts_as{origin};

  Problem bucket;
  const spec::Implementation* described = nullptr;
  spec::Config values;  // of its parameters
  std::string implementation;
  std::string config;
  double cost_ns = 0;
  bool stale = false;
  std::unique_ptr<Workspaces> workspaces;
  std::unique_ptr<RunnerUp> runner_up;  // null where no library serves, or none was found beside it
  /// Of a stand-in: its launches, one in Histogram::stride. On a line of its own: the others are read at each launch.
  alignas(64) mutable std::atomic<std::int64_t> samples{0};
};

}  // namespace kiln::engine
