#include "c/options.hpp"

#include <fmt/format.h>

#include "c/handles.hpp"
#include "c/status.hpp"

namespace kiln::c {
namespace {

void refuse_above(std::int32_t number, int last, const char* name) {
  if (number < 0 || number > last)
    throw Error(ErrorKind::bad_input, fmt::format("kiln_options.{} is {}, expected 0 to {}", name, number, last));
}

/// The enumerator of this number, of `count` that begin with 0.
template <class Enum>
Enum one_of(std::int32_t number, int count, const char* name) {
  refuse_above(number, count - 1, name);
  return static_cast<Enum>(number);
}

std::vector<std::filesystem::path> paths_of(const char* const* texts, std::size_t count, const char* name) {
  given_array(texts, count, name);
  std::vector<std::filesystem::path> paths;
  for (std::size_t i = 0; i < count; ++i) paths.emplace_back(&given(texts[i], fmt::format("{}[{}]", name, i).c_str()));
  return paths;
}

void call(void (*function)(const kiln_tune_event*, void*), void* user, const TuneEvent& event) {
  // Texts of events end with a zero byte only as copies.
  const std::string op(event.op), bucket(event.bucket), implementation(event.implementation), config(event.config),
      verdict(event.verdict), reason(event.reason);
  const kiln_tune_event passed{sizeof(kiln_tune_event),
                               static_cast<std::int32_t>(event.kind),
                               0,
                               op.c_str(),
                               bucket.c_str(),
                               implementation.c_str(),
                               config.c_str(),
                               verdict.c_str(),
                               reason.c_str(),
                               event.done,
                               event.total,
                               event.cost_ns,
                               event.best_ns,
                               event.baseline_ns};
  function(&passed, user);
}

void tell(void (*function)(const kiln_log_event*, void*), void* user, const LogEvent& event) {
  const std::string op(event.op), bucket(event.bucket), text(event.text);
  const kiln_log_event passed{sizeof(kiln_log_event),
                              static_cast<std::int32_t>(event.level),
                              static_cast<std::int32_t>(event.kind),
                              op.c_str(),
                              bucket.c_str(),
                              text.c_str()};
  function(&passed, user);
}

/// Both go on as they are given, so that the engine says which one is missing.
void read_allocator(const kiln_options& given, WorkspaceAllocator& allocator) {
  if (given.allocate != nullptr)
    allocator.allocate = [function = given.allocate, user = given.user](std::size_t bytes, CUstream_st* stream,
                                                                        bool captured) {
      return function(bytes, stream, captured ? 1 : 0, user);
    };
  if (given.free != nullptr)
    allocator.free = [function = given.free, user = given.user](void* address, std::size_t bytes, CUstream_st* stream) {
      function(address, bytes, stream, user);
    };
}

void read_files(const kiln_options& given, Options& options) {
  if (given.overlay != nullptr) options.overlay = given.overlay;
  options.bases = paths_of(given.bases, given.base_count, "kiln_options.bases");
  options.require_bases = given.require_bases != 0;
  refuse_above(given.trust, KILN_TRUST_SIGNED, "trust");
  if (given.trust != KILN_TRUST_DEFAULT) options.trust = static_cast<TrustPolicy>(given.trust - KILN_TRUST_OWNER);
  options.trusted_keys = paths_of(given.trusted_keys, given.trusted_key_count, "kiln_options.trusted_keys");
  options.template_paths = paths_of(given.template_paths, given.template_path_count, "kiln_options.template_paths");
  options.overlay_limit_bytes = given.overlay_limit_bytes;
  if (given.remote != nullptr) options.remote = given.remote;
  if (given.signing_key != nullptr) options.signing_key = given.signing_key;
}

void read_tuning(const kiln_options& given, Options& options) {
  options.search.strategy = one_of<Strategy>(given.strategy, 2, "strategy");
  options.search.trials = given.search_trials;
  options.search.time_limit = std::chrono::milliseconds(given.search_time_limit_ms);
  options.search.seed = given.search_seed;
  if (given.search_samples != nullptr) options.search.samples = given.search_samples;
  options.background_share = given.background_share;
  options.compile_workers = given.compile_workers;
  options.compile_ahead = given.compile_ahead;
  options.isolation = one_of<Isolation>(given.isolation, 3, "isolation");
  if (given.worker != nullptr) options.worker = given.worker;
  options.compile_limit = std::chrono::milliseconds(given.compile_limit_ms);
  options.compile_memory_bytes = given.compile_memory_bytes;
  options.candidate_limit = std::chrono::milliseconds(given.candidate_limit_ms);
  if (given.stop_requested != nullptr)
    options.stop_requested = [function = given.stop_requested, user = given.user] { return function(user) != 0; };
  if (given.on_tune != nullptr)
    options.on_tune = [function = given.on_tune, user = given.user](const TuneEvent& event) {
      call(function, user, event);
    };
}

}  // namespace

Options options_of(const kiln_options& given) {
  Options options;
  options.device = given.device;
  options.on_miss = one_of<MissPolicy>(given.on_miss, 4, "on_miss");
  options.loading = one_of<Loading>(given.loading, 2, "loading");
  options.regime = one_of<Regime>(given.regime, 2, "regime");
  options.workspace_limit_bytes = given.workspace_limit_bytes;
  options.histogram = given.histogram != 0;
  options.compile = one_of<Compile>(given.compile, 2, "compile");
  if (given.nvrtc != nullptr) options.nvrtc = given.nvrtc;
  read_allocator(given, options.workspace_allocator);
  if (given.team != nullptr) options.team = given.team->team;
  if (given.on_log != nullptr)
    options.on_log = [function = given.on_log, user = given.user](const LogEvent& event) {
      tell(function, user, event);
    };
  read_files(given, options);
  read_tuning(given, options);
  return options;
}

void write_defaults(kiln_options& options) noexcept {
  const Options defaults;
  options = {};
  options.size = sizeof options;
  options.device = defaults.device;
  options.on_miss = static_cast<std::int32_t>(defaults.on_miss);
  options.overlay_limit_bytes = defaults.overlay_limit_bytes;
  options.workspace_limit_bytes = defaults.workspace_limit_bytes;
  options.loading = static_cast<std::int32_t>(defaults.loading);
  options.regime = static_cast<std::int32_t>(defaults.regime);
  options.background_share = defaults.background_share;
  options.histogram = defaults.histogram ? 1 : 0;
  options.strategy = static_cast<std::int32_t>(defaults.search.strategy);
  options.search_trials = defaults.search.trials;
  options.search_time_limit_ms = defaults.search.time_limit.count();
  options.search_seed = defaults.search.seed;
  options.compile_workers = defaults.compile_workers;
  options.compile_ahead = defaults.compile_ahead;
  options.isolation = static_cast<std::int32_t>(defaults.isolation);
  options.compile_limit_ms = defaults.compile_limit.count();
  options.compile_memory_bytes = defaults.compile_memory_bytes;
  options.candidate_limit_ms = defaults.candidate_limit.count();
}

}  // namespace kiln::c

kiln_status kiln_options_init(kiln_options* options, size_t size) {
  return kiln::c::guarded([&] {
    kiln::c::given(options, "options");
    if (size != sizeof(kiln_options)) kiln::c::refuse_size("kiln_options", size, sizeof(kiln_options));
    kiln::c::write_defaults(*options);
  });
}
