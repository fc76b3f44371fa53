#include "plan/owner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/nvrtc_api.hpp"
#include "kiln/error.hpp"
#include "plan/op_state.hpp"

namespace kiln::plan {

Owner::Owner(Options checked, manifest::TeamLink link, const store::LayerSettings& files,
             jit::CompileSettings (*compiling)(const Options&), team::Member* of_team)
    : options(std::move(checked)),
      context(options.device, link),
      ops(options.template_paths),
      layers(files),
      pool(compiling(options)),
      cubins(layers, pool),
      length_reports(context, ops.size()),
      workspaces(std::make_unique<Workspaces>(
          options.workspace_limit_bytes > 0 ? options.workspace_limit_bytes : context.info().memory_bytes / 8,
          options.workspace_allocator)),
      team(of_team) {
  if (options.histogram) histogram = std::make_unique<HistogramKeeper>(ops.read_so_far(), layers.overlay());
}

const std::string& Owner::arch() const {
  const std::int64_t sm = context.info().facts.sm();
  if (!pool.may_compile() || cuda::Nvrtc::find() == nullptr) {  // which may be opened later
    std::call_once(target_once_, [&] { target_ = jit::target_arch(sm); });
    return target_;
  }
  std::call_once(arch_once_, [&] { arch_ = jit::default_arch(sm); });
  return arch_;
}

void tell(const std::function<void(const LogEvent&)>& on_log, const LogEvent& event) noexcept {
  if (!on_log) return;
  try {
    on_log(event);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the work goes on, whatever the program makes of the news
  }
}

void Owner::tell(LogEvent::Kind kind, std::string_view op, std::string_view bucket,
                 std::string_view text) const noexcept {
  const bool is_warning = kind == LogEvent::Kind::warning;
  plan::tell(options.on_log, {is_warning ? LogEvent::Level::warning : LogEvent::Level::info, kind, op, bucket, text});
}

void Owner::tell_of_files() const noexcept try {
  if (!options.on_log) return;
  std::vector<std::string> news = layers.warnings();
  {
    const std::lock_guard lock(warnings_mutex_);
    std::erase_if(news, [&](const std::string& each) {
      return std::find(told_of_files_.begin(), told_of_files_.end(), each) != told_of_files_.end();
    });
    told_of_files_.insert(told_of_files_.end(), news.begin(), news.end());
  }
  for (const std::string& each : news) tell(LogEvent::Kind::warning, {}, {}, each);
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): without memory there is no news
}

void Owner::warn(const std::string& warning, std::string_view op, std::string_view bucket) {
  {
    const std::lock_guard lock(warnings_mutex_);
    if (std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) return;
    warnings_.push_back(warning);
  }
  tell(LogEvent::Kind::warning, op, bucket, warning);
}

std::vector<std::string> Owner::warnings() const {
  cuda::require_not_forked();
  std::vector<std::string> all = layers.warnings();
  const std::lock_guard lock(warnings_mutex_);
  all.insert(all.end(), warnings_.begin(), warnings_.end());
  return all;
}

team::Member& require_team(const OpState& op_state, const Problem& problem) {
  if (op_state.owner.team == nullptr)
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is computed by a team of ranks, and this engine has none; set Options::team",
                            op_state.op.name));
  const auto axis = static_cast<std::size_t>(op_state.op.team_axis());
  const team::Member& team = *op_state.owner.team;
  if (problem.axes[axis] != team.world())
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: {} is {} in the problem, and the engine's team '{}' has {} ranks", op_state.op.name,
                            op_state.op.axes[axis].name, problem.axes[axis], team.name(), team.world()));
  return *op_state.owner.team;
}

void require_sound_team(const Owner& owner) {
  if (!owner.team->has_fault()) [[likely]]
    return;
  const auto fault = owner.team->fault();
  if (fault->state == team::Report::none)
    throw Error(ErrorKind::bad_input,
                fmt::format("team '{}' was closed; make a new Team and a new Engine", owner.team->name()));
  const bool is_of_nccl = fault->state == team::Report::nccl_aborted || fault->state == team::Report::nccl_failed;
  throw Error(
      ErrorKind::team_failed,
      fmt::format(
          "team '{}': {}. {}", owner.team->name(), team::text_of(*fault, owner.team->rank(), owner.team->timeout()),
          is_of_nccl ? "Make a new Team and a new Engine"
                     : "The outputs of that launch are NaN; Team::reset on all ranks serves again, or a new Team "
                       "where a rank has ended"));
}

}  // namespace kiln::plan
