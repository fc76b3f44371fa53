// What stands behind Engine, Op and Plan.
#pragma once

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

#include "cuda/device.hpp"
#include "engine/background.hpp"
#include "engine/counters.hpp"
#include "engine/histogram_keeper.hpp"
#include "engine/hot_table.hpp"
#include "engine/length_reports.hpp"
#include "engine/lookup.hpp"
#include "engine/plan_state.hpp"
#include "jit/compile_pool.hpp"
#include "jit/modules.hpp"
#include "kiln/engine.hpp"
#include "spec/catalogue.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"
#include "tune/tuner.hpp"
#include "tune/worker.hpp"

namespace kiln::engine {

struct State;

/// One op of an engine: the call lane, and behind it the miss lane.
struct OpState {
  OpState(State& engine_state, const spec::Op& described);

  // The call lane (call_lane.cpp).
  Origin launch(const Problem& problem, const Arguments& arguments, CUstream stream);
  Origin launch_plan(const PlanState& whole, const Problem& problem, const Arguments& arguments, CUstream stream);

  // The miss lane (miss_lane.cpp): makes the bucket ready once, however many threads ask. Throws Error(capture) on a capturing stream
  // for one that is not.
  const PlanState* prepare(const Problem& problem, CUstream stream);
  /// That, and what launches of the problem need besides, for its stream.
  const PlanState* make_ready(const Problem& problem, CUstream stream);
  /// Makes a bucket's record ready in place of what serves it now.
  void adopt(const Lookup& lookup);
  /// Makes every record of the files ready that has machine code there; before anybody else has this op.
  void load_all();

  // What a capture would find (coverage.cpp).
  Coverage prepare_all(std::span<const Problem> problems, CUstream stream);
  Coverage cover(std::span<const Problem> problems, CUstream stream);
  void cover_ready(Coverage& coverage);

  State& engine;
  const spec::Op& op;
  const spec::Bucketing bucketing;
  alignas(64) HotTable hot;  // what a look reads of it: one line

 private:
  [[nodiscard]] std::size_t index() const noexcept;  // of the op in the engine
  void check_lengths(const Arguments& arguments) const;
  enum class Run : std::uint8_t {
    launched,
    no_workspace,  // for this stream, which is capturing; nothing is launched
    refused,       // by a library, which does not take these sizes; nothing is launched
  };
  Origin launch_in(jit::CallFrame& frame, jit::KeptCall* kept, unsigned thread, const PlanState& plan,
                   const Problem& problem, const Arguments& arguments, CUstream stream);
  Origin launch_in_scratch(const PlanState& plan, const Problem& problem, const Arguments& arguments, CUstream stream);
  /// `kept` is the call that the frame is of, if it is of one.
  [[nodiscard]] Run run(const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments, CUstream stream,
                        jit::KeptCall* kept = nullptr);
  [[nodiscard]] CUresult run_in_context(const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments,
                                        CUstream stream, CUdeviceptr workspace, CUdeviceptr reports);
  /// Throws what a launch that the driver refused comes to.
  [[noreturn]] void refuse(const PlanState& plan, CUresult result, CUstream stream) const;
  /// The workspace for a stream that has none yet; 0 when it is capturing.
  [[nodiscard]] CUdeviceptr make_workspace(const PlanState& plan, CUstream stream);
  void count(const PlanState& plan, const Problem& problem, Origin origin) noexcept;
  void sample(const PlanState& plan, const Problem& problem) noexcept;
  enum class Code : std::uint8_t { any, stored };  // what no file has is compiled, or is Error(not_tuned)
  void require_tensors(const Problem& problem, const Arguments& arguments) const;
  /// The plan for launches with lengths on the device, once those are looked at: a library takes none.
  [[nodiscard]] const PlanState& part_with_lengths(const PlanState& part, const Arguments& arguments, CUstream stream);
  /// Of a library's plan, the one that serves where the library does not, made when it is not there; null for one that has none, and
  /// where it is not there and the stream captures, or the last try failed a moment ago.
  const PlanState* runner_up(const PlanState& plan, CUstream stream);
  /// Null for one that cannot be made, or not for now. What has no code in the files is an error where only that is asked for, and so is a
  /// stopped compile but for a launch, which asks if a try is due.
  enum class Try : std::uint8_t { now, if_due };
  const PlanState* make_runner_up(const PlanState& library, Code code, Try when = Try::now);
  void make_runner_ups(const PlanState& whole, Code code);  // of all its parts
  /// For what the part does not take: its runner-up, or a default. Null when nothing is legal, and for one that is not there while the
  /// stream captures.
  const PlanState* standing_behind(const PlanState& part, const Problem& problem, CUstream stream);
  /// The part, or its runner-up where that is made and it alone is legal.
  [[nodiscard]] const PlanState& serving(const PlanState& part, const Problem& problem) const;
  Origin launch_fallback(const PlanState& refused, const jit::CallFrame& filled, const Problem& problem,
                         const Arguments& arguments, CUstream stream);
  [[nodiscard]] std::optional<std::string> why_default_cannot_serve(const spec::Implementation& implementation,
                                                                    const Problem& bucket) const;

  // Where no plan of the bucket is there, or not all that it needs (capture_lane.cpp).
  Origin launch_missed(const Problem& problem, const Arguments& arguments, CUstream stream);
  /// On a capturing stream: another plan that is loaded, or Error(capture) with what is missing.
  Origin launch_stand_in(const Problem& problem, const Arguments& arguments, CUstream stream, std::string_view missing);
  /// What the stream lacked is remembered, for when the bucket gets a plan.
  void note_missed(const Problem& bucket, CUstream stream);
  /// Off captures: a plan's workspaces for a stream, and for those whose captures missed its bucket.
  void make_workspaces(const PlanState& plan, CUstream stream);
  void make_missed_workspaces(const PlanState& plan);
  /// Loaded plans that may serve the problem on this stream, the nearest bucket's first.
  [[nodiscard]] std::vector<const PlanState*> stand_ins(const Problem& problem, CUstream stream);
  /// The origin that a launch of the problem by a stand-in counts as.
  [[nodiscard]] Origin origin_of(const PlanState& stand_in, const Problem& problem) const noexcept;
  /// Throws Error(capture) where any launch would end another stream's capture, Error(bad_input) for another device's stream.
  [[nodiscard]] bool captures(CUstream stream) const;

  /// A default, loaded for a bucket; null when it is not there yet. No lock.
  [[nodiscard]] const PlanState* loaded_fallback(const spec::Implementation& implementation,
                                                 const Problem& bucket) const noexcept;
  const PlanState* fallback(const spec::Implementation& implementation, const Problem& bucket);
  /// The constraint that the plan's config breaks at these sizes, or nothing.
  [[nodiscard]] std::optional<std::string> broken_constraint(const PlanState& plan, const Problem& problem) const;
  /// The first implementation whose default is legal at these sizes, as a launch falls back to it; null: none is.
  [[nodiscard]] const spec::Implementation* default_at(const Problem& problem) const;
  std::optional<Gap> checked_gap_of(const Problem& problem, CUstream stream);
  void describe_stand_in(Gap& gap, const Problem& problem, CUstream stream);
  void begin_compiles(std::span<const Problem> problems);
  std::optional<Gap> gap_of(const Problem& problem, std::optional<CUstream> stream);
  [[nodiscard]] std::string why_not_ready(const Problem& problem) const;

  /// What `table` has for the bucket, made and published by one thread if it has nothing, while others that ask wait.
  const PlanState* make_once(HotTable& table, const Problem& bucket,
                             const std::function<std::unique_ptr<PlanState>()>& make);
  /// What launches need besides plans, before the first of them.
  void begin_serving();
  std::unique_ptr<PlanState> build(const Problem& problem);
  std::unique_ptr<PlanState> tune(const Lookup& lookup);
  std::unique_ptr<PlanState> load(const Lookup& lookup, Code code = Code::any);
  std::unique_ptr<PlanState> load_part(const Lookup& lookup, Code code);
  std::shared_ptr<jit::Module> module_of(const spec::Implementation& implementation,
                                         std::span<const std::int64_t> frame, const Lookup& lookup, Code code);
  std::shared_ptr<jit::Module> load_module(const tune::KeyedCubin& cubin, const spec::Implementation& implementation,
                                           std::span<const std::int64_t> frame);
  jit::Executable load_executable(const spec::Implementation& implementation, std::span<const std::int64_t> frame,
                                  const Lookup& lookup, Code code);

  std::uint32_t on_device_ = 0;  // bit i: axis i may have its length on the device
  std::mutex mutex_;             // guards what follows, and publication
  std::condition_variable ready_;
  std::vector<std::pair<const HotTable*, Problem>> in_flight_;  // being made
  std::vector<std::unique_ptr<PlanState>> plans_;               // all, fallbacks and those that were replaced too
  std::deque<HotTable> fallbacks_;                              // defaults, one table an implementation
  struct Missed {
    Problem bucket;
    std::unique_ptr<Workspaces> streams;  // of no bytes
  };
  std::vector<Missed> missed_;  // by captures
};

/// Where candidates are to run; null: in this process. Throws Error(bad_input) when a worker is asked for and there is none.
std::unique_ptr<tune::Worker> worker_for(const Options& options);
jit::CompileSettings compile_settings(const Options& options);

struct State {
  explicit State(const Options& chosen);
  /// Leaves its counts to the overlay.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// What compiles are for, jit::default_arch: the first call opens NVRTC, which takes tens of milliseconds.
  [[nodiscard]] const std::string& arch() const;
  /// To tune a bucket here, where candidates of this engine run and as its options say. `op` is referred to.
  [[nodiscard]] tune::TuneRequest tune_request(const spec::Op& op, const Problem& bucket) const;
  /// Adds to what Engine::warnings says; once, however often.
  void warn(const std::string& warning);
  /// Of an op of `ops`, made when it is first asked for. Throws as reading its manifest does.
  OpState& op_state(std::size_t index);
  /// Those made so far.
  void for_each_op(const std::function<void(OpState&)>& visit);
  [[nodiscard]] std::vector<std::string> warnings() const;

  Options options;
  cuda::Context context;
  jit::Modules modules;
  spec::Catalogue ops;
  store::Layers layers;
  jit::CompilePool pool;
  tune::Cubins cubins;
  std::unique_ptr<tune::Worker> worker;  // where candidates run; null: here
  Counters counters;
  LengthReports length_reports;
  std::unique_ptr<HistogramKeeper> histogram;  // null: launches are not counted by problem
  std::mutex tune_mutex;                       // one tune at a time: timings must not meet
  std::string holder;                          // of leases: this process and engine
  std::unique_ptr<Background> background;      // of that policy, else null; last: its thread uses the others

 private:
  mutable std::once_flag arch_once_;
  mutable std::string arch_;
  struct OpSlot {
    std::once_flag made;             // by one thread, while those that ask for the same op wait, and no others
    std::unique_ptr<OpState> state;  // null for one that nobody asked for
  };
  std::mutex op_states_mutex_;     // guards which are there
  std::vector<OpSlot> op_states_;  // in the order of `ops`
  mutable std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
};

}  // namespace kiln::engine
