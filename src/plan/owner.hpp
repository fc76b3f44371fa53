// The part of an engine that its plans see: what it lends them and their launches, and what these ask of it.
// engine::EngineState is the whole.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/compile_pool.hpp"
#include "jit/module.hpp"
#include "kiln/engine.hpp"
#include "manifest/catalogue.hpp"
#include "plan/counters.hpp"
#include "plan/histogram_keeper.hpp"
#include "plan/length_reports.hpp"
#include "plan/workspaces.hpp"
#include "store/layers.hpp"
#include "team/member.hpp"

namespace kiln::plan {

struct BucketPlans;
struct OpState;

/// Calls it, where there is one. What it throws is dropped.
void tell(const std::function<void(const LogEvent&)>& on_log, const LogEvent& event) noexcept;

/// A launch, as its caller asks for it.
struct Call {
  const Problem& problem;
  const Arguments& arguments;
  CUstream stream;
};

struct Owner {
  /// `of_team`: the team of the options, or null.
  Owner(Options checked, manifest::TeamLink link, const store::LayerSettings& files,
        jit::CompileSettings (*compiling)(const Options&), team::Member* of_team);
  virtual ~Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  /// Launches a problem whose bucket has no plan: makes one, or on a capturing stream has a loaded one stand in
  /// (engine/miss_path.cpp).
  virtual Origin launch_cold(OpState& op, const Call& call) = 0;
  /// Throws Error(bad_input) where waiting for the plans of a bucket would be for ever: within a callback of a tune
  /// (engine/tune_once.cpp).
  virtual void refuse_wait(const manifest::Bucket& bucket) const = 0;
  /// Called once for a bucket whose plans need compiles, when these have begun (engine/ahead.hpp).
  virtual void lacks_code(const manifest::Op& op, const Problem& bucket) = 0;
  /// Has the plans that `plans` leave to the background (PlanSlot::is_left) compiled and made there. Returns false
  /// where launches wait for their compiles. `plans` live as long as their op.
  virtual bool compiles_beside(const manifest::Op& op, BucketPlans& plans) noexcept = 0;

  /// jit::default_arch of the device. The first call opens NVRTC, which takes tens of milliseconds.
  [[nodiscard]] const std::string& arch() const;
  /// Adds to Engine::warnings, each warning once, and tells it, with the bucket that it is of.
  void warn(const std::string& warning, std::string_view op = {}, std::string_view bucket = {});
  /// Tells those warnings of the files that were not told before.
  void tell_of_files() const noexcept;
  /// Calls Options::on_log. Level::warning for warnings, else info.
  void tell(LogEvent::Kind kind, std::string_view op, std::string_view bucket, std::string_view text) const noexcept;
  [[nodiscard]] std::vector<std::string> warnings() const;

  Options options;
  cuda::Context context;
  jit::Modules modules;
  manifest::Catalogue ops;
  store::Layers layers;
  jit::CompilePool pool;
  answer::Cubins cubins;
  Counters counters;
  LengthReports length_reports;
  std::unique_ptr<Workspaces> workspaces;      // null once the owner ends
  team::Member* team;                          // null: no op of a team is launched
  std::unique_ptr<HistogramKeeper> histogram;  // null: launches are not counted by problem

 private:
  mutable std::once_flag arch_once_, target_once_;
  mutable std::string arch_;    // by NVRTC
  mutable std::string target_;  // without NVRTC
  mutable std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
  mutable std::vector<std::string> told_of_files_;
};

/// The owner's team. Throws Error(bad_input) where it has none, or where the problem's number of ranks is not the
/// team's.
team::Member& require_team(const OpState& op, const Problem& problem);
/// Throws Error(team_failed) where a launch reported that it ended without the other ranks' data.
void require_sound_team(const Owner& owner);

}  // namespace kiln::plan
