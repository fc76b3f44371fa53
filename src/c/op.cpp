// Ops: names, values made of them, and descriptions; plans.
#include <fmt/format.h>

#include <algorithm>

#include "c/handles.hpp"
#include "c/json.hpp"
#include "c/values.hpp"
#include "manifest/describe.hpp"

const kiln::OpDescription& kiln_op::described() const {
  std::call_once(once_, [this] {
    described_ = op.describe();
    for (const kiln::SelectionDescription& each : described_.selections) {
      words_.emplace_back();
      for (const std::string& word : each.values) words_.back().push_back(word.c_str());
    }
  });
  return described_;
}

const std::vector<std::vector<const char*>>& kiln_op::words() const {
  static_cast<void>(described());
  return words_;
}

namespace kiln::c {
namespace {

std::vector<Op::Setting> settings_of(const kiln_setting* settings, std::size_t count) {
  given_array(settings, count, "settings");
  std::vector<Op::Setting> result;
  for (const kiln_setting& each : std::span(settings, count)) {
    const std::string_view name = &given(each.name, "kiln_setting.name");
    if (each.word == nullptr)
      result.emplace_back(name, each.number);
    else
      result.emplace_back(name, std::string_view(each.word));
  }
  return result;
}

std::vector<Op::Argument> values_of(const kiln_argument* values, std::size_t count) {
  given_array(values, count, "values");
  std::vector<Op::Argument> result;
  for (const kiln_argument& each : std::span(values, count)) {
    const std::string_view name = &given(each.name, "kiln_argument.name");
    switch (each.kind) {
      case KILN_ARGUMENT_ADDRESS: result.emplace_back(name, each.address); break;
      case KILN_ARGUMENT_INTEGER: result.emplace_back(name, each.integer); break;
      case KILN_ARGUMENT_REAL: result.emplace_back(name, each.real); break;
      default:
        throw Error(ErrorKind::bad_input,
                    fmt::format("kiln_argument.kind of '{}' is {}, expected 0 to 2", name, each.kind));
    }
  }
  return result;
}

template <class Range>
const auto& at(const Range& range, std::uint32_t index, const kiln_op& op, const char* what) {
  if (index >= range.size())
    throw Error(ErrorKind::bad_input,
                fmt::format("{} has {} {}, and number {} is asked for", op.name, range.size(), what, index));
  return range[index];
}

}  // namespace
}  // namespace kiln::c

using namespace kiln::c;

void kiln_op_destroy(kiln_op* op) { delete op; }

const char* kiln_op_name(const kiln_op* op) { return op == nullptr ? "" : op->name.c_str(); }

kiln_status kiln_op_axis(const kiln_op* op, const char* name, uint32_t* id) {
  return guarded([&] { given(id, "id") = given(op, "op").op.axis(&given(name, "name")).index; });
}

kiln_status kiln_op_tensor(const kiln_op* op, const char* name, uint32_t* id) {
  return guarded([&] { given(id, "id") = given(op, "op").op.tensor(&given(name, "name")).index; });
}

kiln_status kiln_op_value(const kiln_op* op, const char* name, uint32_t* id) {
  return guarded([&] { given(id, "id") = to_id(given(op, "op").op.runtime(&given(name, "name"))); });
}

kiln_status kiln_op_problem(const kiln_op* op, const kiln_setting* settings, size_t count, kiln_problem* problem) {
  return guarded(
      [&] { read(sized(problem, "kiln_problem")) = given(op, "op").op.problem(settings_of(settings, count)); });
}

kiln_status kiln_op_arguments(const kiln_op* op, const kiln_argument* values, size_t count, kiln_arguments* arguments) {
  return guarded(
      [&] { read(sized(arguments, "kiln_arguments")) = given(op, "op").op.arguments(values_of(values, count)); });
}

kiln_status kiln_op_binding(const kiln_op* op, const kiln_setting* settings, size_t setting_count,
                            const kiln_argument* values, size_t value_count, kiln_binding* binding) {
  return guarded([&] {
    kiln_binding& to = sized(binding, "kiln_binding");
    const kiln::Binding made =
        given(op, "op").op.binding(settings_of(settings, setting_count), values_of(values, value_count));
    read(sized(&to.problem, "kiln_binding.problem")) = made.problem;
    read(sized(&to.arguments, "kiln_binding.arguments")) = made.arguments;
    to.axes_given = made.axes_given;
    to.selections_given = made.selections_given;
    to.values_given = made.values_given;
  });
}

kiln_status kiln_op_describe(const kiln_op* op, const kiln_problem* problem, char** json) {
  return guarded([&] {
    given(json, "json");
    const kiln::OpDescription described = problem == nullptr
                                              ? given(op, "op").described()
                                              : given(op, "op").op.describe(read(sized(problem, "kiln_problem")));
    *json = text_of(line_of(kiln::manifest::to_json(described)));
  });
}

kiln_status kiln_op_get_info(const kiln_op* op, kiln_op_info* info) {
  return guarded([&] {
    const kiln::OpDescription& of = given(op, "op").described();
    sized(info, "kiln_op_info") = {sizeof(kiln_op_info),
                                   of.name.c_str(),
                                   of.summary.c_str(),
                                   of.contract.c_str(),
                                   of.folder.c_str(),
                                   of.revision,
                                   static_cast<std::uint32_t>(of.axes.size()),
                                   static_cast<std::uint32_t>(of.selections.size()),
                                   static_cast<std::uint32_t>(of.runtime.size()),
                                   static_cast<std::uint32_t>(of.tensors.size())};
  });
}

kiln_status kiln_op_axis_info(const kiln_op* op, uint32_t axis, kiln_axis_info* info) {
  return guarded([&] {
    const kiln::AxisDescription& of = at(given(op, "op").described().axes, axis, *op, "axes");
    sized(info, "kiln_axis_info") = {
        sizeof(kiln_axis_info), of.name.c_str(),      of.policy.c_str(), of.minimum, of.maximum,
        of.multiple_of,         of.on_device ? 1 : 0, of.team ? 1 : 0};
  });
}

kiln_status kiln_op_selection_info(const kiln_op* op, uint32_t selection, kiln_selection_info* info) {
  return guarded([&] {
    const kiln::SelectionDescription& of =
        at(given(op, "op").described().selections, selection, *op, "types and choices");
    const std::vector<const char*>& words = op->words()[selection];
    sized(info, "kiln_selection_info") = {sizeof(kiln_selection_info),
                                          of.name.c_str(),
                                          of.default_text.c_str(),
                                          words.data(),
                                          words.size(),
                                          of.is_type ? 1 : 0,
                                          0};
  });
}

kiln_status kiln_op_value_info(const kiln_op* op, uint32_t value, kiln_value_info* info) {
  return guarded([&] {
    const kiln::RuntimeDescription& of = at(given(op, "op").described().runtime, value, *op, "run-time values");
    sized(info, "kiln_value_info") = {sizeof(kiln_value_info), of.name.c_str(),       of.type.c_str(),
                                      of.default_text.c_str(), of.bound_text.c_str(), to_id(of.id),
                                      of.team_rank ? 1 : 0};
  });
}

kiln_status kiln_op_tensor_info(const kiln_op* op, uint32_t tensor, kiln_tensor_info* info) {
  return guarded([&] {
    const kiln::TensorDescription& of = at(given(op, "op").described().tensors, tensor, *op, "tensors");
    kiln_tensor_info& to = sized(info, "kiln_tensor_info");
    to = {sizeof(kiln_tensor_info),
          of.name.c_str(),
          of.type.c_str(),
          of.when.c_str(),
          static_cast<std::int32_t>(of.shape.size()),
          of.output ? 1 : 0,
          of.optional ? 1 : 0,
          of.per_rank ? 1 : 0,
          {},
          {}};
    for (std::size_t i = 0; i < of.shape.size(); ++i) {
      to.shape[i] = of.shape[i].c_str();
      to.strides[i] = of.strides[i].c_str();
    }
  });
}

kiln_status kiln_plan_create(const kiln_op* op, const kiln_problem* problem, kiln_stream stream, kiln_plan** plan) {
  return guarded([&] {
    given(plan, "plan");
    *plan = new kiln_plan(given(op, "op").op.plan(read(sized(problem, "kiln_problem")), stream));
  });
}

void kiln_plan_destroy(kiln_plan* plan) { delete plan; }

kiln_status kiln_plan_get_info(const kiln_plan* plan, kiln_plan_info* info) {
  return guarded([&] {
    const kiln_plan& of = given(plan, "plan");
    kiln_plan_info& to = sized(info, "kiln_plan_info");
    const kiln::Footprint footprint = of.plan.footprint();
    to = {sizeof(kiln_plan_info),
          of.implementation.c_str(),
          of.config.c_str(),
          of.plan.cost_ns(),
          of.plan.workspace_bytes(),
          static_cast<std::int32_t>(of.plan.origin()),
          footprint.registers,
          footprint.spill_bytes,
          footprint.blocks_per_multiprocessor,
          0};
  });
}
