#include "manifest/describe.hpp"

namespace kiln::manifest {
namespace {

using Json = nlohmann::ordered_json;

/// null for nothing, and for texts that are empty.
template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}
Json or_null(const std::optional<Number>& value) {
  return value ? std::visit([](auto number) { return Json(number); }, *value) : Json();
}
Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json or_null(std::int64_t number) { return number == 0 ? Json() : Json(number); }

Json json_of(const AxisDescription& axis, bool has_problem) {
  Json json{{"name", axis.name},   {"bucket", axis.policy},           {"min", axis.minimum},
            {"max", axis.maximum}, {"multiple_of", axis.multiple_of}, {"on_device", axis.on_device},
            {"team", axis.team}};
  if (has_problem) {
    json["size"] = axis.size;
    json["bucket_low"] = or_null(axis.bucket_low);
    json["bucket_high"] = or_null(axis.bucket_high);
  }
  return json;
}

Json json_of(const SelectionDescription& selection) {
  return {{"name", selection.name},
          {"kind", selection.is_type ? "type" : "choice"},
          {"values", selection.values},
          {"default", selection.default_text},
          {"value", or_null(selection.value)}};
}

Json json_of(const RuntimeDescription& value) {
  return {{"name", value.name},
          {"type", value.type},
          {"default", or_null(value.default_text)},
          {"bound", or_null(value.bound_text)},
          {"verified_with", or_null(value.verify_text)},
          {"team_rank", value.team_rank},
          {"default_value", or_null(value.default_value)},
          {"minimum", or_null(value.minimum)},
          {"above", or_null(value.exclusive_minimum)},
          {"maximum", or_null(value.maximum)},
          {"below", or_null(value.exclusive_maximum)}};
}

Json json_of(const TensorDescription& tensor) {
  Json json{{"name", tensor.name},         {"type", tensor.type},
            {"shape", tensor.shape},       {"strides", tensor.strides},
            {"output", tensor.output},     {"optional", tensor.optional},
            {"per_rank", tensor.per_rank}, {"initialised", or_null(tensor.initialised)},
            {"when", or_null(tensor.when)}};
  if (tensor.element) {
    json["present"] = tensor.present;
    json["element"] = to_string(*tensor.element);
    json["sizes"] = tensor.sizes;
    json["default_strides"] = tensor.default_strides;
    json["bytes"] = tensor.bytes;
    json["least_alignment"] = tensor.least_alignment;
    json["best_alignment"] = tensor.best_alignment;
  }
  return json;
}

}  // namespace

Json to_json(const OpDescription& description) {
  Json json{{"op", description.name},
            {"summary", description.summary},
            {"contract", or_null(description.contract)},
            {"revision", description.revision},
            {"folder", description.folder},
            {"axes", Json::array()},
            {"selections", Json::array()},
            {"allowed", Json::array()},
            {"runtime", Json::array()},
            {"tensors", Json::array()},
            {"implementations", description.implementations}};
  const bool has_problem = !description.tensors.empty() && description.tensors.front().element.has_value();
  for (const AxisDescription& each : description.axes) json["axes"].push_back(json_of(each, has_problem));
  for (const SelectionDescription& each : description.selections) json["selections"].push_back(json_of(each));
  for (const RuleDescription& each : description.rules)
    json["allowed"].push_back({{"when", each.when}, {"message", each.message}});
  for (const RuntimeDescription& each : description.runtime) json["runtime"].push_back(json_of(each));
  for (const TensorDescription& each : description.tensors) json["tensors"].push_back(json_of(each));
  return json;
}

}  // namespace kiln::manifest
