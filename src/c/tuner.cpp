// Tuning ahead, and files to ship.
#include <fmt/format.h>

#include "c/handles.hpp"
#include "c/json.hpp"
#include "c/values.hpp"

namespace kiln::c {
namespace {

std::vector<Demand> demands_of(kiln_tuner& tuner) {
  const std::lock_guard lock(tuner.mutex);
  return tuner.demands;
}

void add(kiln_tuner& tuner, std::vector<Demand> demands) {
  const std::lock_guard lock(tuner.mutex);
  tuner.demands.insert(tuner.demands.end(), std::make_move_iterator(demands.begin()),
                       std::make_move_iterator(demands.end()));
}

}  // namespace
}  // namespace kiln::c

using namespace kiln::c;

kiln_status kiln_tuner_create(kiln_engine* engine, kiln_tuner** tuner) {
  return guarded([&] {
    given(tuner, "tuner");
    *tuner = new kiln_tuner(given(engine, "engine").engine);
  });
}

void kiln_tuner_destroy(kiln_tuner* tuner) { delete tuner; }

kiln_status kiln_tuner_add(kiln_tuner* tuner, const char* op, const kiln_problem* problems, size_t count) {
  return guarded([&] {
    given_array(problems, count, "problems");
    std::vector<kiln::Demand> demands;
    for (std::size_t i = 0; i < count; ++i)
      demands.push_back({&given(op, "op"), read(sized(problems + i, "kiln_problem"))});
    add(given(tuner, "tuner"), std::move(demands));
  });
}

kiln_status kiln_tuner_add_between(kiln_tuner* tuner, const char* op, const kiln_problem* low,
                                   const kiln_problem* high) {
  return guarded([&] {
    kiln_tuner& to = given(tuner, "tuner");
    add(to, to.tuner.between(&given(op, "op"), read(sized(low, "kiln_problem")), read(sized(high, "kiln_problem"))));
  });
}

kiln_status kiln_tuner_tune(kiln_tuner* tuner, int32_t retune, char** report) {
  return guarded([&] {
    if (retune < 0 || retune > KILN_RETUNE_ALL)
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("retune is {}, expected 0 to 2", retune));
    kiln::TuneChoice choice;
    choice.retune = static_cast<kiln::Retune>(retune);
    const kiln::TuneReport found = given(tuner, "tuner").tuner.tune(demands_of(*tuner), choice);
    if (report != nullptr) *report = text_of(line_of(to_json(found)));
  });
}

kiln_status kiln_tuner_compile(kiln_tuner* tuner, char** report) {
  return guarded([&] {
    Json json = Json::array();
    for (const kiln::Deployment& each : given(tuner, "tuner").tuner.compile(demands_of(*tuner)))
      json.push_back(to_json(each));
    if (report != nullptr) *report = text_of(line_of(json));
  });
}

kiln_status kiln_tuner_deploy(kiln_tuner* tuner, const char* path, int32_t replace, char** report) {
  return guarded([&] {
    kiln::TuneChoice choice;
    choice.replace = replace != 0;
    const kiln::Deployment found = given(tuner, "tuner").tuner.deploy(demands_of(*tuner), &given(path, "path"), choice);
    if (report != nullptr) *report = text_of(line_of(to_json(found)));
  });
}
