#include "ahead.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <utility>

#include "engines.hpp"
#include "op.hpp"

namespace kiln_python {
namespace {

/// Buckets to be tuned, compiled or deployed, of ops of one folder on one device.
class Tuner {
 public:
  explicit Tuner(int device) : device_(device) {}
  ~Tuner() {
    if (handle_ != nullptr) destroy_tuner(handle_);
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  void add(Op& op, const nb::dict& settings, const nb::dict& sizes) {
    Bound& bound = op.on(device_);
    const std::vector<kiln_problem> problems = op.problems(bound, settings, sizes);
    refuse_if_over();
    if (handle_ == nullptr) {
      check(kiln_tuner_create(bound.engine, &handle_));
      add_tuner(handle_);
      engine_ = bound.engine;
      device_ = bound.device;
    }
    if (engine_ != bound.engine)
      bad_input("kiln.Tuner.add: " + op.name() + " is of the folder '" + op.folder() +
                "', and a tuner has ops of one folder; make another tuner for it");
    check(kiln_tuner_add(handle_, op.name().c_str(), problems.data(), problems.size()));
  }

  std::string tune(int retune) {
    return report([&](char** text) { return kiln_tuner_tune(handle_, retune, text); });
  }
  std::string compile() {
    return report([&](char** text) { return kiln_tuner_compile(handle_, text); });
  }
  std::string deploy(const std::string& path, bool replace) {
    return report([&](char** text) { return kiln_tuner_deploy(handle_, path.c_str(), replace ? 1 : 0, text); });
  }

 private:
  template <class Function>
  std::string report(const Function& function) {
    if (handle_ == nullptr) bad_input("kiln.Tuner: no problems were added; call add first");
    refuse_if_over();
    char* text = nullptr;
    Released::run([&] { return function(&text); });
    std::string told = taken(text);
    tell();
    return told;
  }

  int device_;
  kiln_tuner* handle_ = nullptr;
  kiln_engine* engine_ = nullptr;
};

kiln_team* team = nullptr;  // until the process ends

kiln_team& joined() {
  refuse_if_over();
  if (team == nullptr) bad_input("this process is in no team; call kiln.join_team first");
  return *team;
}

/// The name, rank, world, device and bytes. Where rank is nothing, the launcher's variables tell them.
nb::tuple join_team(std::optional<int> rank, int world, const std::string& name, int device, std::int64_t bytes,
                    std::int64_t timeout_ms, std::int64_t launch_timeout_ms,
                    const std::optional<std::string>& address) {
  refuse_if_over();
  refuse_second_team();
  kiln_team_options options = KILN_TEAM_OPTIONS_INIT;
  options.device = device;
  options.bytes = bytes;
  options.timeout_ms = timeout_ms;
  options.launch_timeout_ms = launch_timeout_ms;
  options.address = address ? address->c_str() : nullptr;
  kiln_team* made = nullptr;
  Released::run([&] {
    return rank ? kiln_team_create(*rank, world, name.c_str(), &options, &made)
                : kiln_team_from_launcher(&options, &made);
  });
  kiln_team_info info = KILN_TEAM_INFO_INIT;
  check(kiln_team_get_info(made, &info));
  team = made;
  set_team(made, info.device);
  return nb::make_tuple(info.name, info.rank, info.world, info.device, info.bytes);
}

std::string team_name() {
  char* name = nullptr;
  check(kiln_team_name(&name));
  return taken(name);
}

}  // namespace

void add_ahead(nb::module_& module) {
  nb::class_<Tuner>(module, "Tuner")
      .def(nb::init<int>())
      .def("add", &Tuner::add)
      .def("tune", &Tuner::tune)
      .def("compile", &Tuner::compile)
      .def("deploy", &Tuner::deploy);
  module.def("team_name", &team_name);
  module.def("join_team", &join_team, nb::arg("rank").none(), nb::arg("world"), nb::arg("name"), nb::arg("device"),
             nb::arg("bytes"), nb::arg("timeout_ms"), nb::arg("launch_timeout_ms"), nb::arg("address").none());
  module.def("reset_team", [] { Released::run([&of = joined()] { return kiln_team_reset(&of); }); });
  module.def("close_team", [] { Released::run([&of = joined()] { return kiln_team_close(&of); }); });
}

}  // namespace kiln_python
