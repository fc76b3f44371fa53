// One op of an engine: the hit path, and behind it the miss path, captures and coverage.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/capture_guard.hpp"
#include "engine/plan_store.hpp"
#include "kiln/engine.hpp"
#include "spec/bucketing.hpp"

namespace kiln::engine {

struct State;

struct OpState {
  OpState(State& engine_state, const spec::Op& described);

  // The hit path (hit_path.cpp).
  Origin launch(const Problem& problem, const Arguments& arguments, CUstream stream);
  Origin launch_plan(const PlanState& edge, const Problem& problem, const Arguments& arguments, CUstream stream);

  // The miss path (miss_path.cpp): makes the bucket ready once, however many threads ask. Throws Error(capture) on a capturing stream
  // for one that is not.
  const PlanState* prepare(const Problem& problem, CUstream stream);
  /// That, and what launches of the problem need besides, for its stream.
  const PlanState* make_ready(const Problem& problem, CUstream stream);
  /// Makes a bucket's record ready in place of what serves it now.
  void adopt(Resolution resolution);
  /// Makes every record of the files ready that has machine code there; before anybody else has this op.
  void load_all();
  /// As the resolver answers on this engine's device.
  [[nodiscard]] Resolution resolve(const Problem& problem, bool stand_ins) const;

  // What a capture would find (coverage.cpp).
  Coverage prepare_all(std::span<const Problem> problems, CUstream stream);
  Coverage cover(std::span<const Problem> problems, CUstream stream);
  void cover_ready(Coverage& coverage);

  State& engine;
  const spec::Op& op;
  const spec::Bucketing bucketing;
  PlanStore plans;
  CaptureGuard captures;

 private:
  enum class Run : std::uint8_t {
    launched,
    no_workspace,  // for this stream, which is capturing; nothing is launched
    refused,       // at these sizes or addresses, or by a library; nothing is launched
  };
  struct Attempt {
    Run run;
    Origin origin;
  };
  [[nodiscard]] std::size_t index() const noexcept;  // of the op in the engine
  void check_lengths(const Arguments& arguments) const;
  void require_tensors(const Problem& problem, const Arguments& arguments) const;
  Origin launch_in(jit::CallFrame& frame, jit::KeptCall* kept, unsigned thread, const PlanState& plan,
                   const Problem& problem, const Arguments& arguments, CUstream stream);
  Origin launch_in_scratch(const PlanState& plan, const Problem& problem, const Arguments& arguments, CUstream stream);
  Attempt attempt(jit::CallFrame& frame, jit::KeptCall* kept, unsigned thread, const PlanState& plan,
                  const Problem& problem, const Arguments& arguments, CUstream stream);
  Attempt attempt(const PlanState& plan, const Problem& problem, const Arguments& arguments, CUstream stream);
  /// `kept` is the call that the frame is of, if it is of one.
  [[nodiscard]] Run run(const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments, CUstream stream,
                        jit::KeptCall* kept = nullptr);
  [[nodiscard]] CUresult run_in_context(const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments,
                                        CUstream stream, CUdeviceptr workspace, CUdeviceptr reports);
  /// Maps a failed launch's CUresult to kiln::Error, and throws it.
  [[noreturn]] void refuse(const PlanState& plan, CUresult result, CUstream stream) const;
  /// The workspace for a stream that has none yet; 0 when it is capturing.
  [[nodiscard]] CUdeviceptr make_workspace(const PlanState& plan, CUstream stream);
  void count(const PlanState& plan, const Problem& problem, Origin origin) noexcept;
  void sample(const PlanState& plan, const Problem& problem) noexcept;

  // Where a plan cannot serve, or is not there (next_answer.cpp, capture.cpp).
  /// The plan for a launch with lengths on the device, once those are looked at: a library takes none.
  [[nodiscard]] const PlanState& plan_with_lengths(const PlanState& plan, const Problem& problem,
                                                   const Arguments& arguments, CUstream stream);
  /// What the plan refused: the next answers, in order.
  Origin launch_next(const PlanState& refused, const Problem& problem, const Arguments& arguments, CUstream stream);
  /// The slot's plan, made if it is not there; null while the stream captures, and where it cannot be made.
  const PlanState* ready(PlanSlot& slot, BucketPlans& of, CUstream stream);
  [[nodiscard]] std::string why_none_serves(BucketPlans& of, const Problem& problem, const Arguments& arguments) const;
  Origin launch_missed(const Problem& problem, const Arguments& arguments, CUstream stream);
  /// On a capturing stream: another plan that is loaded, or Error(capture) with what is missing.
  Origin launch_stand_in(const Problem& problem, const Arguments& arguments, CUstream stream, std::string_view missing);
  /// Loaded plans that may serve the problem on this stream, the nearest bucket's first.
  [[nodiscard]] std::vector<const PlanState*> stand_ins(const Problem& problem, CUstream stream);
  /// The origin that a launch of the problem by a stand-in counts as.
  [[nodiscard]] Origin origin_of(const PlanState& stand_in, const Problem& problem) const noexcept;

  /// The answer that serves a problem of a bucket that is loaded, and the first that sizes alone pick, with why that one does not serve.
  struct Served {
    std::size_t index = 0;  // of the answer; as many as there are where none serves
    const Answer* first = nullptr;
    std::string refused;  // empty where the first serves
  };
  /// From the given answer on; `own_only`: of those that need no library.
  [[nodiscard]] Served served(const BucketPlans& of, const Problem& problem, bool own_only = false,
                              std::size_t from = 0) const;
  void make_serving(BucketPlans& of, const Problem& problem, CUstream stream);
  /// Throws Error(capture) where it is not.
  void require_workspace(bool is_there, const Problem& problem) const;
  /// Nothing for a hit. Without a stream, workspaces are left out.
  std::optional<Gap> gap_of(const Problem& problem, std::optional<CUstream> stream);
  /// Of a bucket that is loaded: the plan that serves the problem, null where it is not loaded; why it is a gap, where it is one.
  const PlanState* describe_plan(Gap& gap, BucketPlans& of, const Problem& problem) const;
  std::optional<Gap> checked_gap_of(const Problem& problem, CUstream stream);
  void describe_stand_in(Gap& gap, const Problem& problem, CUstream stream);
  void begin_compiles(std::span<const Problem> problems);
  [[nodiscard]] std::string why_not_ready(const Problem& problem) const;

  /// What launches need besides plans, before the first of them.
  void begin_serving();
  std::unique_ptr<BucketPlans> build(const Problem& problem);
  std::unique_ptr<BucketPlans> tune(const Resolution& missed);

  std::uint32_t on_device_ = 0;  // bit i: axis i may have its length on the device
};

}  // namespace kiln::engine
