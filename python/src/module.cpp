// The extension of the package kiln. What users see is in kiln/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "ahead.hpp"
#include "engines.hpp"
#include "op.hpp"
#include "tensor.hpp"

namespace kiln_python {
namespace {

PyObject* call_op(PyObject* self, PyObject* positional, PyObject* keywords) {
  try {
    nb::inst_ptr<Op>(self)->call(positional, keywords);
    tell();
    Py_RETURN_NONE;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyType_Slot op_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_op)}, {0, nullptr}};

nb::tuple prepare(Op& op, const nb::dict& settings, const nb::dict& sizes, nb::object stream, int device,
                  bool only_looks) {
  Bound& bound = op.on(device);
  const Stream on = stream_of(stream);
  const std::vector<kiln_problem> problems = op.problems(bound, settings, sizes);
  kiln_coverage found = KILN_COVERAGE_INIT;
  char* json = nullptr;
  refuse_if_over();
  Released::run([&] {
    const auto function = only_looks ? kiln_engine_coverage : kiln_engine_prepare;
    return function(bound.engine, bound.op, problems.data(), problems.size(), on.handle, &found, &json);
  });
  const std::string text = taken(json);
  tell();
  return nb::make_tuple(found.total, found.hits, found.capturable != 0, text);
}

std::string explain(Op& op, const nb::dict& settings, int device) {
  Bound& bound = op.on(device);
  const kiln_problem problem = op.problem(bound, settings);
  char* text = nullptr;
  refuse_if_over();
  Released::run([&] { return kiln_engine_explain(bound.engine, bound.op, &problem, 1, &text); });
  return taken(text);
}

std::string describe(Op& op, const std::optional<nb::dict>& settings, int device) {
  Bound& bound = op.on(device);
  kiln_problem problem = KILN_PROBLEM_INIT;
  if (settings) problem = op.problem(bound, *settings);
  char* text = nullptr;
  refuse_if_over();
  check(kiln_op_describe(bound.op, settings ? &problem : nullptr, &text));
  return taken(text);
}

nb::dict stats(int device) {
  kiln_stats sum = KILN_STATS_INIT;
  static constexpr std::pair<const char*, std::int64_t kiln_stats::*> fields[] = {
      {"hot", &kiln_stats::hot},
      {"overlay", &kiln_stats::overlay},
      {"base", &kiln_stats::base},
      {"nearest", &kiln_stats::nearest},
      {"model", &kiln_stats::model},
      {"default", &kiln_stats::default_},
      {"tunes", &kiln_stats::tunes},
      {"compiles", &kiln_stats::compiles},
      {"compiles_ahead", &kiln_stats::compiles_ahead},
      {"stale", &kiln_stats::stale},
      {"constraint_fallbacks", &kiln_stats::constraint_fallbacks},
      {"quarantined", &kiln_stats::quarantined},
      {"waiting", &kiln_stats::waiting},
      {"uncounted", &kiln_stats::uncounted},
      {"workspace_bytes", &kiln_stats::workspace_bytes},
      {"shared_hits", &kiln_stats::shared_hits},
      {"shared_misses", &kiln_stats::shared_misses},
      {"shared_errors", &kiln_stats::shared_errors},
      {"shared_bytes", &kiln_stats::shared_bytes},
      {"miss_absent", &kiln_stats::miss_absent},
      {"miss_unusable", &kiln_stats::miss_unusable},
      {"miss_damaged", &kiln_stats::miss_damaged},
      {"miss_unreadable", &kiln_stats::miss_unreadable},
      {"miss_no_cubin", &kiln_stats::miss_no_cubin},
      {"miss_refused_cubin", &kiln_stats::miss_refused_cubin}};
  if (!engines().empty()) refuse_if_over();
  for (const Engine& each : engines()) {
    if (device >= 0 && each.device != device) continue;
    kiln_stats found = KILN_STATS_INIT;
    check(kiln_engine_stats(each.handle, &found));
    for (const auto& [name, field] : fields) sum.*field += found.*field;
    sum.tuning_ns += found.tuning_ns;
  }
  nb::dict result;
  for (const auto& [name, field] : fields) result[name] = sum.*field;
  result["tuning_s"] = sum.tuning_ns / 1e9;
  return result;
}

/// Those of each engine that has launched.
std::vector<std::string> workloads() {
  std::vector<std::string> all;
  if (!engines().empty()) refuse_if_over();
  for (const Engine& each : engines()) {
    char* text = nullptr;
    check(kiln_engine_workload(each.handle, &text));
    if (std::string workload = taken(text); !workload.empty()) all.push_back(std::move(workload));
  }
  return all;
}

std::vector<std::string> warnings() {
  std::vector<std::string> all;
  if (!engines().empty()) refuse_if_over();
  for (const Engine& each : engines()) {
    char* text = nullptr;
    check(kiln_engine_warnings(each.handle, &text));
    all.push_back(taken(text));
  }
  tell();
  return all;
}

/// Waits for tunes in the background; false where the time passed before.
bool wait_for_tunes(double seconds) {
  constexpr double longest = 1e9;
  if (!(seconds >= 0)) bad_input("wait_for_tunes: a time of 0 seconds or more is expected");
  seconds = std::min(seconds, longest);
  bool all_ended = true;
  for (const Engine& each : engines()) {
    refuse_if_over();
    std::int32_t ended = 0;
    Released::run(
        [&] { return kiln_engine_wait_for_tunes(each.handle, static_cast<std::int64_t>(seconds * 1e3), &ended); });
    all_ended = all_ended && ended != 0;
  }
  tell();
  return all_ended;
}

/// A length or an index in device memory that was out of its bounds; nothing where there is none.
std::optional<std::string> fault_on(nb::object stream, int device) {
  const Stream on = stream_of(stream);
  for (const Engine& each : engines()) {
    if (device >= 0 && each.device != device) continue;
    char* fault = nullptr;
    refuse_if_over();
    Released::run([&] { return kiln_engine_check(each.handle, on.handle, &fault); });
    if (fault != nullptr) return taken(fault);
  }
  return {};
}

/// What the module has once it was made, except its own names, and the interpreter that made it. The types and the state are the
/// process's, so an import after the module's removal from sys.modules gets them again.
PyObject* made = nullptr;
std::int64_t owner = -1;  // none once it has ended: an embedding program's next one has the number again

std::int64_t this_interpreter() noexcept { return PyInterpreterState_GetID(PyInterpreterState_Get()); }

void keep(const nb::module_& module) {
  nb::dict all;
  for (const auto& [name, value] : nb::cast<nb::dict>(module.attr("__dict__")))
    if (!text_of(name).starts_with("__")) all[name] = value;
  owner = this_interpreter();
  Py_AtExit([] { owner = -1; });
  made = all.release().ptr();
}

}  // namespace
}  // namespace kiln_python

// The extension's own entry, `PyInit__kiln`, calls the one that this makes.
NB_MODULE(kiln_module, module) {
  using namespace kiln_python;
  if (made != nullptr) {
    module.attr("__dict__").attr("update")(nb::handle(made));
    return;
  }
  nb::set_leak_warnings(false);  // ops and names live until the process ends
  nb::class_<Op>(module, "Op", nb::type_slots(op_slots))
      .def(nb::init<std::string, std::string>())
      .def_prop_ro("name", &Op::name)
      .def_prop_ro("folder", &Op::folder);
  nb::class_<Settings>(module, "Settings")
      .def(nb::init<>())
      .def_rw("overlay", &Settings::overlay)
      .def_rw("worker", &Settings::worker)
      .def_rw("nvrtc", &Settings::nvrtc)
      .def_rw("remote", &Settings::remote)
      .def_rw("signing_key", &Settings::signing_key)
      .def_rw("bases", &Settings::bases)
      .def_rw("trusted_keys", &Settings::trusted_keys)
      .def_rw("on_miss", &Settings::on_miss)
      .def_rw("compile", &Settings::compile)
      .def_rw("trust", &Settings::trust)
      .def_rw("isolation", &Settings::isolation)
      .def_rw("compile_workers", &Settings::compile_workers)
      .def_rw("compile_ahead", &Settings::compile_ahead)
      .def_rw("require_bases", &Settings::require_bases)
      .def_rw("histogram", &Settings::histogram)
      .def_rw("workspace_limit_bytes", &Settings::workspace_limit_bytes)
      .def_rw("overlay_limit_bytes", &Settings::overlay_limit_bytes)
      .def_rw("search_trials", &Settings::search_trials)
      .def_rw("search_time_limit_ms", &Settings::search_time_limit_ms);
  module.def("install", [](nb::object error, nb::object begin, nb::object log) {
    hooks() = {std::move(error), std::move(begin), std::move(log)};
  });
  module.def("configure", &configure);
  module.def("prepare", &prepare, nb::arg("op"), nb::arg("settings"), nb::arg("sizes"), nb::arg("stream").none(),
             nb::arg("device"), nb::arg("only_looks"));
  module.def("explain", &explain);
  module.def("describe", &describe, nb::arg("op"), nb::arg("settings").none(), nb::arg("device"));
  module.def("stats", &stats);
  module.def("warnings", &warnings);
  module.def("workloads", &workloads);
  module.def("wait_for_tunes", &wait_for_tunes);
  module.def("fault_on", &fault_on, nb::arg("stream").none(), nb::arg("device"));
  add_ahead(module);
  module.def("end", &end);
  module.attr("version") = kiln_version();
  module.attr("kept") = nb::dict();
  add_table(module);
  keep(module);
}

namespace kiln_python {
namespace {

int (*make)(PyObject*) = nullptr;  // nanobind's

/// Another interpreter is refused before nanobind makes types for it, which would replace those of the first.
int refuse_or_make(PyObject* module) {
  if (made == nullptr || owner == this_interpreter()) return make(module);
  PyErr_SetString(PyExc_ImportError,
                  "another interpreter of this process has imported kiln, which serves one; import it in one "
                  "interpreter alone, or start a process for each");
  return -1;
}

}  // namespace
}  // namespace kiln_python

/// Python 3.13 calls this in the main interpreter also for an import in another one: only a slot runs in the one that imports.
extern "C" NB_EXPORT PyObject* PyInit__kiln() {
  using namespace kiln_python;
  PyObject* const definition = PyInit_kiln_module();
  if (definition == nullptr || make != nullptr) return definition;
  for (PyModuleDef_Slot* each = reinterpret_cast<PyModuleDef*>(definition)->m_slots; each->slot != 0; ++each) {
    if (each->slot != Py_mod_exec) continue;
    make = reinterpret_cast<int (*)(PyObject*)>(each->value);
    each->value = reinterpret_cast<void*>(refuse_or_make);
  }
  return definition;
}
