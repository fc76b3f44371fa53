#include "engines.hpp"

#include <dlfcn.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

namespace kiln_python {
namespace {

constexpr std::chrono::seconds patience_at_end{10};
enum Level { debug = 10, info = 20, warning = 30 };  // of logging

struct State {
  Settings settings;
  std::mutex list_mutex;  // held for moments alone
  std::vector<Engine> engines;
  std::map<std::tuple<std::string, std::string, int>, std::unique_ptr<Bound>> ops;
  std::set<kiln_tuner*> tuners;
  kiln_team* team = nullptr;
  int team_device = -1;
  std::mutex making;  // taken without the GIL
  std::vector<std::string> package_bases;
  bool has_begun = false;
  std::atomic<bool> is_ending{false}, is_forked{false};
  std::atomic<int> calls{0};  // which run without the GIL
  std::atomic<decltype(kiln_options::allocate)> allocate{nullptr};
  std::atomic<decltype(kiln_options::free)> free{nullptr};

  std::mutex lines_mutex;
  std::deque<std::pair<int, std::string>> lines;
  std::atomic<bool> has_lines{false};
};

/// Never destroyed: threads of Kiln's may still use it.
State& state() noexcept {
  static auto* const kept = new State;
  return *kept;
}

void add_line(int level, std::string line) {
  State& to = state();
  const std::lock_guard lock(to.lines_mutex);
  to.lines.emplace_back(level, std::move(line));
  to.has_lines = true;
}

// Called on threads that tune. Of these only a Python thread inside of a call asks Python anything.
int32_t stop_requested(void*) {
  if (state().is_ending) return 1;
  Released* const call = Released::current();
  return call != nullptr && call->has_signal() ? 1 : 0;
}

void on_log(const kiln_log_event* event, void*) {
  std::string line = event->op;
  if (*event->bucket != '\0') line += std::string(" ") + event->bucket;
  if (!line.empty()) line += ": ";
  const int level = event->kind == KILN_LOG_OF_COMPILE && event->level == KILN_LOG_INFO ? debug
                    : event->level == KILN_LOG_WARNING                                  ? warning
                                                                                        : info;
  add_line(level, line + event->text);
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& each : texts) result.push_back(each.c_str());
  return result;
}

template <class To, class From>
void set(To& to, const std::optional<From>& from) {
  if (from) to = static_cast<To>(*from);
}

kiln_status create(int device, const std::string& folder, kiln_engine** engine) {
  const State& from = state();
  const Settings& settings = from.settings;
  kiln_options options;
  if (const kiln_status status = kiln_options_init(&options, sizeof options)) return status;
  std::vector<const char*> bases = pointers(settings.bases), package_bases = pointers(from.package_bases),
                           keys = pointers(settings.trusted_keys);
  bases.insert(bases.end(), package_bases.begin(), package_bases.end());
  const char* const folders[] = {folder.c_str()};
  options.device = device;
  options.bases = bases.data();
  options.base_count = bases.size();
  options.trusted_keys = keys.data();
  options.trusted_key_count = keys.size();
  options.template_paths = folders;
  options.template_path_count = folder.empty() ? 0 : 1;
  if (settings.overlay) options.overlay = settings.overlay->c_str();
  if (settings.worker) options.worker = settings.worker->c_str();
  if (settings.remote) options.remote = settings.remote->c_str();
  if (settings.signing_key) options.signing_key = settings.signing_key->c_str();
  if (settings.nvrtc) options.nvrtc = settings.nvrtc->c_str();
  set(options.on_miss, settings.on_miss);
  set(options.compile, settings.compile);
  set(options.trust, settings.trust);
  set(options.isolation, settings.isolation);
  set(options.compile_workers, settings.compile_workers);
  set(options.compile_ahead, settings.compile_ahead);
  set(options.require_bases, settings.require_bases);
  set(options.histogram, settings.histogram);
  set(options.workspace_limit_bytes, settings.workspace_limit_bytes);
  set(options.overlay_limit_bytes, settings.overlay_limit_bytes);
  set(options.search_trials, settings.search_trials);
  set(options.search_time_limit_ms, settings.search_time_limit_ms);
  if (device == from.team_device) options.team = from.team;
  options.stop_requested = stop_requested;
  options.on_log = on_log;
  options.allocate = from.allocate;
  options.free = from.free;
  options.user = reinterpret_cast<void*>(static_cast<std::intptr_t>(device));
  return kiln_engine_create(&options, engine);
}

/// Without the GIL, and with `making` held.
kiln_status make_op(const std::string& name, const std::string& folder, int device, Bound& bound) {
  State& in = state();
  for (const Engine& each : engines())
    if (each.device == device && each.folder == folder) bound.engine = each.handle;
  if (bound.engine == nullptr) {
    if (const kiln_status status = create(device, folder, &bound.engine)) return status;
    const std::lock_guard lock(in.list_mutex);
    in.engines.push_back({device, folder, bound.engine});
  }
  return kiln_engine_op(bound.engine, name.c_str(), &bound.op);
}

void add_name(Bound& bound, const char* text, Name::Kind kind, std::uint32_t id, bool output) {
  PyObject* const name = PyUnicode_InternFromString(text);
  if (name == nullptr) throw nb::python_error();
  bound.names.push_back({nb::steal(name), kind, id, output});
}

void read_names(Bound& bound) {
  kiln_op_info op = KILN_OP_INFO_INIT;
  check(kiln_op_get_info(bound.op, &op));
  for (std::uint32_t i = 0; i < op.tensors; ++i) {
    kiln_tensor_info tensor = KILN_TENSOR_INFO_INIT;
    check(kiln_op_tensor_info(bound.op, i, &tensor));
    add_name(bound, tensor.name, Name::Kind::tensor, i, tensor.output != 0);
  }
  for (std::uint32_t i = 0; i < op.values; ++i) {
    kiln_value_info value = KILN_VALUE_INFO_INIT;
    check(kiln_op_value_info(bound.op, i, &value));
    add_name(bound, value.name, Name::Kind::value, value.id, false);
  }
  for (std::uint32_t i = 0; i < op.selections; ++i) {
    kiln_selection_info selection = KILN_SELECTION_INFO_INIT;
    check(kiln_op_selection_info(bound.op, i, &selection));
    add_name(bound, selection.name, Name::Kind::selection, i, false);
  }
  for (std::uint32_t i = 0; i < op.axes; ++i) {
    kiln_axis_info axis = KILN_AXIS_INFO_INIT;
    check(kiln_op_axis_info(bound.op, i, &axis));
    add_name(bound, axis.name, Name::Kind::axis, i, false);
  }
}

void mark_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { state().is_forked = true; });
  (void)once;
}

void begin() {
  State& in = state();
  if (in.has_begun) return;
  auto files = nb::cast<std::vector<std::string>>(hooks().begin());
  if (in.has_begun) return;  // another thread was faster
  in.package_bases = std::move(files);
  in.has_begun = true;
  mark_forks();
}

}  // namespace

void configure(Settings settings) {
  if (state().has_begun)
    bad_input("kiln.configure was called after Kiln's first use; call it before the first op is launched or prepared");
  state().settings = std::move(settings);
}

std::vector<Engine> engines() {
  const std::lock_guard lock(state().list_mutex);
  return state().engines;
}

void refuse_second_team() {
  if (state().team != nullptr) bad_input("kiln.join_team was called before, and a process is one rank of one team");
  if (!engines().empty())
    bad_input("kiln.join_team was called after Kiln's first use; call it before the first op is launched or prepared");
}

void set_team(kiln_team* team, int device) {
  state().team = team;
  state().team_device = device;
  mark_forks();
}

void add_tuner(kiln_tuner* tuner) {
  const std::lock_guard lock(state().list_mutex);
  state().tuners.insert(tuner);
}

void destroy_tuner(kiln_tuner* tuner) noexcept {
  State& in = state();
  if (in.is_forked) return;
  {
    const std::lock_guard lock(in.list_mutex);
    if (in.tuners.erase(tuner) == 0) return;
  }
  kiln_tuner_destroy(tuner);
}

Bound& bound_op(const std::string& name, const std::string& folder, int device) {
  State& in = state();
  refuse_if_over();
  if (const auto found = in.ops.find({name, folder, device}); found != in.ops.end()) return *found->second;
  begin();
  auto bound = std::make_unique<Bound>();
  bound->device = device;
  Released::run([&] {
    const std::lock_guard lock(in.making);
    return make_op(name, folder, device, *bound);
  });
  read_names(*bound);
  auto& kept = in.ops[{name, folder, device}];
  if (kept == nullptr)
    kept = std::move(bound);
  else
    kiln_op_destroy(bound->op);  // another thread was faster
  return *kept;
}

namespace {

/// The driver's function, where this process has loaded the driver; else null.
template <class Function>
Function* driver_function(const char* name) {
  const char* const named = std::getenv("KILN_CUDA_LIBRARY");
  const char* const file = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
  void* const library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
  dlclose(library);  // it stays: who loaded it holds it
  return function;
}

}  // namespace

int current_device() {
  auto* const get = driver_function<int(int*)>("cuCtxGetDevice");
  int device = 0;
  return get != nullptr && get(&device) == 0 ? device : 0;
}

std::optional<int> device_of(const void* address) {
  constexpr int device_ordinal = 9, invalid_value = 1;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CUDA_ERROR_INVALID_VALUE
  auto* const get = driver_function<int(void*, int, std::uintptr_t)>("cuPointerGetAttribute");
  int device = 0;
  const int found = get == nullptr ? -1 : get(&device, device_ordinal, reinterpret_cast<std::uintptr_t>(address));
  if (found == invalid_value) return {};
  return found == 0 && device >= 0 ? device : KILN_DEVICE_UNKNOWN;
}

void refuse_if_over() {
  const State& in = state();
  if (in.is_forked) [[unlikely]]
    fail(kiln_status_name(KILN_DRIVER_FAILED),
         "this process was forked from one that had used Kiln, and a CUDA context does not survive a fork; start "
         "processes with the method 'spawn', or use Kiln first in the child");
  if (in.is_ending) [[unlikely]]
    fail(kiln_status_name(KILN_INTERRUPTED), "the interpreter is ending; launch before it does");
}

bool is_over() noexcept { return state().is_forked || state().is_ending; }

void set_allocator(decltype(kiln_options::allocate) allocate, decltype(kiln_options::free) free) {
  state().free = free;
  state().allocate = allocate;
}

void enter_call() noexcept { state().calls.fetch_add(1, std::memory_order_acq_rel); }
void leave_call() noexcept { state().calls.fetch_sub(1, std::memory_order_acq_rel); }

void tell() {
  State& in = state();
  if (!in.has_lines.load(std::memory_order_relaxed)) [[likely]]
    return;
  for (;;) {  // a handler that raises leaves the rest for the next call
    std::pair<int, std::string> line;
    {
      const std::lock_guard lock(in.lines_mutex);
      in.has_lines = !in.lines.empty();
      if (in.lines.empty()) return;
      line = std::move(in.lines.front());
      in.lines.pop_front();
    }
    hooks().log(line.first, readable(line.second));
  }
}

void end() {
  State& in = state();
  if (in.is_forked || in.is_ending.exchange(true)) return;
  {
    const nb::gil_scoped_release released;
    // A thread that is still within a launch keeps its handles.
    const auto limit = std::chrono::steady_clock::now() + patience_at_end;
    while (in.calls.load(std::memory_order_acquire) != 0) {
      if (std::chrono::steady_clock::now() > limit) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (kiln_tuner* each : std::exchange(in.tuners, {})) kiln_tuner_destroy(each);
    for (auto& [key, bound] : in.ops) kiln_op_destroy(std::exchange(bound->op, nullptr));
    for (Engine& each : in.engines) kiln_engine_destroy(std::exchange(each.handle, nullptr));
    kiln_team_destroy(std::exchange(in.team, nullptr));
  }
  tell();
}

}  // namespace kiln_python
