#include "kiln/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "answer/explain.hpp"
#include "cuda/nvrtc_api.hpp"
#include "cuda/stream_owner.hpp"
#include "engine/ahead.hpp"
#include "engine/background.hpp"
#include "engine/coverage.hpp"
#include "engine/miss_path.hpp"
#include "engine/shared_answers.hpp"
#include "engine/state.hpp"
#include "engine/team/agree.hpp"
#include "manifest/environment.hpp"
#include "manifest/keep_loaded.hpp"
#include "manifest/no_signals.hpp"
#include "manifest/text.hpp"
#include "manifest/workload_text.hpp"
#include "process/child.hpp"
#include "store/holder.hpp"
#include "store/key_ring.hpp"
#include "store/trust.hpp"
#include "team/state.hpp"

namespace kiln {

namespace engine {
namespace {

constexpr std::chrono::hours longest_limit{24 * 20};  // poll(2) takes an int of milliseconds

store::LayerSettings layer_settings(const Options& options) {
  return {options.overlay ? options.overlay : store::default_overlay(),
          options.bases,
          store::trust_policy(options.trust),
          store::key_folders(options.trusted_keys),
          options.overlay_limit_bytes,
          options.require_bases};
}

/// For SQLite's busy handler, which no exception may pass through. One ends the wait, and the tune meets it again at
/// its next call.
bool wants_to_stop(const Options& options) noexcept {
  try {
    return options.stop_requested();
  } catch (...) {
    return true;
  }
}

std::chrono::milliseconds bounded(std::chrono::milliseconds limit) {
  return std::min<std::chrono::milliseconds>(limit, longest_limit);
}

manifest::TeamLink link_of(const Options& options) {
  return options.team == nullptr ? manifest::TeamLink::none : team::state_of(*options.team).member->link();
}

/// Takes a path from the current directory, which the program may change before the engine uses the path.
void make_full(std::filesystem::path& path) {
  if (path.empty() || path.is_absolute()) return;
  std::error_code removed;  // the current directory: the use of the path says that it names nothing
  if (auto full = std::filesystem::absolute(path, removed); !removed) path = std::move(full);
}

void make_paths_full(Options& options) {
  const std::filesystem::path named = manifest::environment("KILN_WORKER");
  if (options.worker.empty() && named.is_relative() && named != "none") options.worker = named;
  make_full(options.worker);
  make_full(options.search.samples);
  if (options.nvrtc.has_parent_path()) make_full(options.nvrtc);  // a bare name is the loader's to find
}

/// The options with full paths, and with durations that clocks can add. Throws Error(bad_input) for an option out of
/// its range.
Options checked(Options options) {
  const auto refuse = [](std::string_view name, auto found, std::string_view expected) {
    throw Error(ErrorKind::bad_input, fmt::format("Options::{} is {}, expected {}", name, found, expected));
  };
  const auto none_below_0 = [&](std::string_view name, std::int64_t found) {
    if (found < 0) refuse(name, found, "0 or more");
  };
  const auto none_above = [&](std::string_view name, auto found, auto last) {
    if (found > last) refuse(name, static_cast<int>(found), fmt::format("0 to {}", static_cast<int>(last)));
  };
  none_above("on_miss", options.on_miss, MissPolicy::error);
  none_above("loading", options.loading, Loading::eager);
  none_above("regime", options.regime, Regime::hot_l2);
  none_above("compile", options.compile, Compile::never);
  none_above("isolation", options.isolation, Isolation::in_process);
  none_above("search.strategy", options.search.strategy, Strategy::exhaustive);
  if (options.trust) none_above("trust", *options.trust, TrustPolicy::signed_files);
  none_below_0("overlay_limit_bytes", options.overlay_limit_bytes);
  none_below_0("workspace_limit_bytes", options.workspace_limit_bytes);
  none_below_0("compile_workers", options.compile_workers);
  if (options.compile_ahead < -1) refuse("compile_ahead", options.compile_ahead, "-1 or more");
  none_below_0("compile_memory_bytes", options.compile_memory_bytes);
  none_below_0("search.trials", options.search.trials);
  none_below_0("search.time_limit, in milliseconds,", options.search.time_limit.count());
  if (options.compile_limit.count() <= 0)
    refuse("compile_limit, in milliseconds,", options.compile_limit.count(), "more than 0");
  if (options.candidate_limit.count() <= 0)
    refuse("candidate_limit, in milliseconds,", options.candidate_limit.count(), "more than 0");
  if (!(options.background_share > 0 && options.background_share <= 1))
    refuse("background_share", options.background_share, "a share of the GPU's time, over 0 and up to 1");
  const WorkspaceAllocator& allocator = options.workspace_allocator;
  if (static_cast<bool>(allocator.allocate) != static_cast<bool>(allocator.free))
    refuse("workspace_allocator", allocator.allocate ? "without `free`" : "without `allocate`", "both or neither");
  if (options.team != nullptr && options.team->device() != options.device)
    throw Error(
        ErrorKind::bad_input,
        fmt::format("Options::device is {}, and the team '{}' has this rank on device {}; set it to Team::device()",
                    options.device, options.team->name(), options.team->device()));
  for (auto* limit : {&options.compile_limit, &options.candidate_limit, &options.search.time_limit})
    *limit = bounded(*limit);
  make_paths_full(options);
  return options;
}

}  // namespace

jit::CompileSettings compile_settings(const Options& options) {
  jit::CompileSettings settings{.workers = options.compile_workers, .spare = options.compile_ahead};
  if (options.isolation != Isolation::in_process) settings.program = process::find_worker(options.worker);
  settings.limit = options.compile_limit;
  settings.memory_bytes = options.compile_memory_bytes;
  settings.never = options.compile == Compile::never;
  if (options.on_log)
    settings.on_end = [on_log = options.on_log](const jit::CompileEnd& end) {
      try {
        const std::string text = end.failure == nullptr
                                     ? fmt::format("{} was compiled {}in {} ms", end.specialisation.label,
                                                   end.is_spare ? "ahead " : "", end.took.count())
                                     : fmt::format("{} was not compiled: {}", end.specialisation.label, end.failure);
        plan::tell(on_log, {end.failure == nullptr ? LogEvent::Level::info : LogEvent::Level::warning,
                            LogEvent::Kind::compile,
                            end.specialisation.op,
                            {},
                            text});
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): without memory there is no news
      }
    };
  return settings;
}

std::string why_no_worker(const Options& options, const cuda::DeviceInfo& device) {
  if (device.mode != cuda::ComputeMode::exclusive || options.isolation == Isolation::in_process ||
      process::find_worker(options.worker).empty())
    return {};
  return fmt::format(
      "GPU {} is in exclusive-process mode, so candidates run in this process: one that faults or hangs ends the tune; "
      "nvidia-smi -i {} -c DEFAULT, or MPS, lets kiln-worker run them",
      device.ordinal, device.ordinal);
}

std::unique_ptr<tune::Worker> worker_for(const Options& options, const cuda::DeviceInfo& device) {
  if (options.isolation == Isolation::in_process) return nullptr;
  const auto [program, refused] = process::look_for_worker(options.worker);
  if (const std::string why = why_no_worker(options, device); !why.empty()) {
    if (options.isolation == Isolation::automatic) return nullptr;
    throw Error(ErrorKind::bad_input, "a worker process was asked for, and " + why);
  }
  if (!program.empty()) return std::make_unique<tune::Worker>(program, tune::WorkerTimeouts{options.candidate_limit});
  if (options.isolation == Isolation::automatic) return nullptr;
  throw Error(
      ErrorKind::bad_input,
      refused.empty()
          ? "a worker process was asked for and kiln-worker was not found; name it in Options::worker or KILN_WORKER"
          : fmt::format("a worker process was asked for, and {}", refused.front()));
}

EngineState::EngineState(const Options& chosen)
    : Owner(checked(chosen), link_of(chosen), layer_settings(chosen), compile_settings,
            chosen.team == nullptr ? nullptr : &*team::state_of(*chosen.team).member),
      worker(worker_for(options, context.info())),
      holder(store::unique_holder()),
      op_states_(ops.size()) {
  tell_of_files();
  layers.tell_news_to([this] { tell_of_files(); });
  if (options.nvrtc.empty())
    cuda::Nvrtc::forget_failed_choice();
  else if (options.compile != Compile::never && !cuda::Nvrtc::choose(options.nvrtc.string()))
    warn(fmt::format("Options::nvrtc {} is not used: this process has opened {} before", options.nvrtc.string(),
                     cuda::Nvrtc::get().path));
  if (options.isolation != Isolation::in_process)
    for (const std::string& each : process::look_for_worker(options.worker).refused) warn(each);
  for (const manifest::RefusedOp& each : ops.refused())
    warn(fmt::format("the op {} is left out: {}", manifest::quote(each.name), each.why));
  for (const std::string& each : store::ops_of_others(ops)) warn(each);
  if (const std::string why = why_no_worker(options, context.info()); !why.empty()) warn(why);
  if (options.stop_requested) layers.overlay().stop_waiting_when([this] { return wants_to_stop(options); });
  if (options.on_miss == MissPolicy::background) background = std::make_unique<Background>(*this);
  if (pool.spare_at_once() > 0) ahead = std::make_unique<Ahead>(*this);
  shared = SharedAnswers::open(*this);
}

EngineState::~EngineState() {
  // What follows must not end a capture of another thread.
  const cuda::RelaxedCapture relaxed;
  background.reset();
  const auto shared_counts = shared ? shared->client().counters() : remote::ClientCounters();
  shared.reset();
  ahead.reset();
  try {
    layers.write_queued();           // while its failure can be reported
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory, and what is lost can be fetched again
  }
  layers.tell_news_to({});
  {
    const cuda::Context::Guest guest(context);
    op_states_.clear();
    workspaces.reset();
  }
  std::vector<store::Usage> usage = counters.usage();
  for (const auto& [key, count] :
       {std::pair("hit", shared_counts.hits), {"miss", shared_counts.misses}, {"error", shared_counts.errors}})
    if (count > 0) usage.push_back({"shared", key, count, 0});
  if (shared_counts.bytes > 0) usage.push_back({"shared_bytes", "values", shared_counts.bytes, 0});
  try {
    layers.overlay().note_usage(usage);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): only counts are lost
  }
}

void call_elsewhere(std::function<void()> work) noexcept {
  try {
    const manifest::NoSignals no_signals;
    manifest::keep_library_loaded();
    std::thread(std::move(work)).detach();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): what it would destroy stays
  }
}

void destroy(EngineState* engine) {
  if (engine->background && engine->background->is_this_thread())
    engine->background->delete_at_end(*engine);
  else if (engine->shared && engine->shared->client().is_this_thread())
    engine->shared->client().call_at_end([engine] { delete engine; });
  else if (engine->ahead && engine->ahead->is_this_thread())
    engine->ahead->delete_at_end(*engine);
  else if (jit::CompilePool::is_compiling())
    call_elsewhere([engine] { delete engine; });
  else
    delete engine;
}

plan::OpState& EngineState::op_state(std::size_t index) {
  cuda::require_not_forked();
  OpSlot& slot = op_states_[index];
  std::call_once(slot.made, [&] {
    auto made = std::make_unique<plan::OpState>(*this, index);
    if (options.loading == Loading::eager) {
      if (shared && !made->op.is_of_team()) shared->bring_all(made->site());
      load_all(*made);
    }
    const std::lock_guard lock(op_states_mutex_);
    slot.state = std::move(made);
  });
  return *slot.state;
}

void EngineState::lacks_code(const manifest::Op& op, const Problem& bucket) {
  if (ahead) ahead->want_near(op_state(ops.index_of(op.name)), bucket);
}

bool EngineState::compiles_beside(const manifest::Op& op, plan::BucketPlans& plans) noexcept try {
  if (!ahead || op.is_of_team()) return false;
  plan::OpState& state = op_state(ops.index_of(op.name));
  if (!state.takes_fallbacks() || !cubins.can_compile()) return false;
  ahead->want_left(state, plans);
  return true;
} catch (const std::exception&) {  // no memory: the launch compiles
  return false;
}

void EngineState::for_each_op(const std::function<void(plan::OpState&)>& visit) {
  cuda::require_not_forked();
  const std::lock_guard lock(op_states_mutex_);
  for (const OpSlot& each : op_states_)
    if (each.state) visit(*each.state);
}

tune::TuneRequest EngineState::tune_request(const manifest::Op& op, const Problem& edge) const {
  const cuda::DeviceInfo& device = context.info();
  return {.bucket = {{op, device.facts, options.regime}, edge},
          .device = device,
          .arch = arch(),
          .search = options.search,
          .stop_requested = options.stop_requested,
          .on_event = options.on_tune};
}

}  // namespace engine

static_assert(std::string_view(KILN_VERSION) == KILN_VERSION_STRING, "kiln/version.h is not the project's version");
std::string_view version() noexcept { return KILN_VERSION; }

namespace {

std::shared_ptr<engine::EngineState> make_state(const Options& options) {
  cuda::require_not_forked();  // before the driver is called, by whose locks a child may hang
  const cuda::RelaxedCapture relaxed;
  return engine::make_owned<engine::EngineState>(options);
}

}  // namespace

Engine::Engine(const Options& options) : state_(make_state(options)) {}

Op Engine::op(std::string_view name) const {
  return Op(std::shared_ptr<plan::OpState>(state_, &state_->op_state(state_->ops.index_of(name))));
}

std::vector<std::string> Engine::ops() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < state_->ops.size(); ++i) names.push_back(state_->ops.name(i));
  return names;
}

std::string Engine::workload() const {
  std::vector<manifest::OpBucket> buckets;
  state_->for_each_op([&](plan::OpState& each) {
    each.plans.for_each([&](const plan::BucketPlans& plans) {
      const manifest::OpBucket bucket{&each.op, plans.resolution.bucket.edge};
      const auto made = plans.made();
      // A record's plan that is ready counts its first launch as the record's, and later ones as hot.
      const bool was_launched = std::ranges::any_of(made, [](const plan::PlanState* plan) {
        return is_fallback(plan->origin) || plan->counts_as.load(std::memory_order_relaxed) == Origin::hot;
      });
      if (was_launched && std::ranges::find(buckets, bucket) == buckets.end()) buckets.push_back(bucket);
    });
  });
  return manifest::workload_text(buckets);
}

Stats Engine::stats() const {
  cuda::require_not_forked();
  Stats stats = state_->counters.read();
  stats.compiles = state_->cubins.compiled();
  stats.compiles_ahead = state_->pool.compiled_spare();
  stats.workspace_bytes = state_->workspaces->bytes();
  for (const store::Layer& layer : state_->layers.layers())
    if (layer.file) stats.quarantined += layer.file->counters().quarantined;
  if (state_->histogram) stats.uncounted = state_->histogram->lost();
  if (state_->background) {
    stats.compiles += state_->background->compiled();
    stats.tuning_ns = state_->background->spent_ns();
    stats.waiting = state_->background->waiting();
  }
  if (state_->shared) {
    const remote::ClientCounters shared = state_->shared->client().counters();
    stats.shared_hits = shared.hits;
    stats.shared_misses = shared.misses;
    stats.shared_errors = shared.errors;
    stats.shared_bytes = shared.bytes;
  }
  return stats;
}

Explanation Engine::explain(const Op& op, const Problem& problem) const {
  const manifest::Op& described = op.state_->op;
  manifest::check_problem(described, problem, manifest::Zeros::taken);
  if (manifest::is_empty(described, problem)) return answer::explain_nothing(described, problem);
  const cuda::Context::Scope scope(state_->context);  // where a library is asked what it takes
  state_->layers.write_queued();                      // it says what each file has
  return answer::explain({described, state_->context.info().facts, state_->options.regime}, problem, state_->arch(),
                         state_->layers, state_->cubins);
}

plan::OpState& Engine::own(const Op& op) const {
  if (&op.state_->owner == state_.get()) return *op.state_;
  throw Error(ErrorKind::bad_input,
              fmt::format("the op {} is of another engine; take it from this one's Engine::op", op.name()));
}

Coverage Engine::prepare(const Op& op, std::span<const Problem> problems, Stream stream) const {
  return engine::prepare_all(own(op), problems, stream);
}

Coverage Engine::coverage(const Op& op, std::span<const Problem> problems, Stream stream) const {
  return engine::cover(own(op), problems, stream);
}

Coverage Engine::coverage() const {
  Coverage all;
  state_->for_each_op([&](plan::OpState& each) { engine::cover_ready(each, all); });
  return all;
}

bool Engine::wait_for_tunes(std::chrono::milliseconds limit) const {
  cuda::require_not_forked();
  const auto end = std::chrono::steady_clock::now() + engine::bounded(std::max(limit, std::chrono::milliseconds(0)));
  engine::catch_up(*state_);
  if (state_->shared) state_->shared->write_until(end);  // before waits that may last until the end
  const bool is_done = (!state_->background || state_->background->wait_until(end)) &&
                       (!state_->ahead || state_->ahead->wait_until(end));
  return (!state_->shared || state_->shared->wait_until(end)) && is_done;
}

std::optional<LengthFault> Engine::check(Stream stream) const {
  const cuda::Context::Scope scope(state_->context);
  cuda::require_own(state_->context, stream);
  if (cuda::is_capturing(stream))
    throw Error(ErrorKind::capture,
                "Engine::check waits for its stream, which is capturing; call it once the graph was launched");
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "waiting for a stream whose lengths are to be checked");
  if (state_->team != nullptr) plan::require_sound_team(*state_);
  const auto report = state_->length_reports.take();
  if (!report) return std::nullopt;
  const manifest::Op& op = state_->ops[report->op];
  if (const manifest::Tensor* const tensor = op.reported_tensor(report->word))
    return LengthFault{op.name, "", report->length, report->bound, tensor->name};
  return LengthFault{op.name, op.axes[report->word].name, report->length, report->bound, ""};
}

std::int64_t Engine::trim() const {
  const cuda::Context::Scope scope(state_->context);
  const cuda::RelaxedCapture relaxed;
  return state_->workspaces->trim();
}

std::vector<std::string> Engine::warnings() const { return state_->warnings(); }

}  // namespace kiln
