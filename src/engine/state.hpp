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
#include "engine/length_reports.hpp"
#include "engine/op_state.hpp"
#include "jit/compile_pool.hpp"
#include "jit/module.hpp"
#include "kiln/engine.hpp"
#include "manifest/catalogue.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"
#include "tune/tuner.hpp"
#include "tune/worker.hpp"

namespace kiln::engine {

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
  [[nodiscard]] tune::TuneRequest tune_request(const manifest::Op& op, const Problem& bucket) const;
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
  manifest::Catalogue ops;
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

/// A callback on the thread that tunes in the background may let go of the last Engine, Op or Plan. That thread cannot wait for its own
/// end, so that another one does.
void let_go(State* state);
template <class Owned>
void let_go(Owned* owned) {
  delete owned;
}

/// As std::make_shared, but that a forked child (cuda::is_forked) lets go of it as it is: its threads are not there to be joined, its processes
/// and leases are the parent's, and its locks may stay locked.
template <class Owned, class... Given>
std::shared_ptr<Owned> make_owned(Given&&... given) {
  auto made = std::make_unique<Owned>(std::forward<Given>(given)...);
  return {made.release(), [](Owned* owned) {
            if (!cuda::is_forked()) let_go(owned);
          }};
}

}  // namespace kiln::engine
