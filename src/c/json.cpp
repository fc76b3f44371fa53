#include "c/json.hpp"

#include <fmt/format.h>

namespace kiln::c {
namespace {

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string_view to_string(TunedBucket::Outcome outcome) {
  switch (outcome) {
    case TunedBucket::Outcome::found: return "found";
    case TunedBucket::Outcome::tuned: return "tuned";
    case TunedBucket::Outcome::failed: break;
  }
  return "failed";
}

}  // namespace

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json to_json(const Explanation& explanation) {
  Json json{{"problem", explanation.problem},
            {"bucket", explanation.bucket},
            {"key", explanation.key},
            {"layers", Json::array()},
            {"origin", kiln::to_string(explanation.origin)},
            {"implementation", or_null(explanation.implementation)},
            {"config", or_null(explanation.config)},
            {"why", explanation.why},
            {"miss", or_null(explanation.miss)},
            {"stale", explanation.stale},
            {"cubin_found", explanation.cubin_found},
            {"machine_code", or_null(explanation.machine_code)},
            {"compiler", or_null(explanation.compiler)},
            {"nvrtc", or_null(explanation.nvrtc)},
            {"library", or_null(explanation.library)},
            {"cost_ns", explanation.cost_ns},
            {"timed_at", or_null(explanation.timed_at)},
            {"expected_slowdown", explanation.expected_slowdown},
            {"slowdown_grounds", or_null(explanation.slowdown_grounds)},
            {"passes", explanation.passes}};
  for (const LayerAnswer& layer : explanation.layers)
    json["layers"].push_back({{"layer", layer.layer},
                              {"found", layer.found},
                              {"opened", layer.opened},
                              {"trusted", layer.trusted},
                              {"trust", layer.trust}});
  return json;
}

std::string text_of(const Explanation& explanation) {
  std::string text;
  const auto line = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", name, value);
  };
  line("problem", explanation.problem);
  line("bucket", explanation.bucket);
  for (const LayerAnswer& layer : explanation.layers) line(layer.layer, layer.found);
  line("answer", explanation.implementation.empty()
                     ? "nothing serves"
                     : fmt::format("{} {}, from {}{}", explanation.implementation, explanation.config,
                                   kiln::to_string(explanation.origin), explanation.stale ? ", stale" : ""));
  line("because", explanation.why);
  line("machine code", explanation.machine_code);
  line("library", explanation.library);
  if (explanation.cost_ns > 0)
    line("time", fmt::format("{:.2f} us {}", explanation.cost_ns / 1000, explanation.timed_at));
  for (const std::string& pass : explanation.passes) line("pass", pass);
  return text;
}

Json to_json(const Coverage& coverage) {
  Json json{{"total", coverage.total},
            {"hits", coverage.hits},
            {"capturable", coverage.capturable()},
            {"gaps", Json::array()}};
  for (const Gap& gap : coverage.gaps)
    json["gaps"].push_back({{"op", gap.op},
                            {"problem", or_null(gap.problem)},
                            {"bucket", or_null(gap.bucket)},
                            {"serves", gap.serves ? Json(kiln::to_string(*gap.serves)) : Json()},
                            {"workspace_missing", gap.workspace_missing},
                            {"why", gap.why}});
  return json;
}

Json to_json(const TuneReport& report) {
  Json json{{"wanted", report.wanted}, {"interrupted", report.interrupted}, {"buckets", Json::array()}};
  for (const TunedBucket& each : report.buckets)
    json["buckets"].push_back({{"op", each.op},
                               {"sizes", each.bucket.axes},
                               {"device_class", each.device_class},
                               {"outcome", to_string(each.outcome)},
                               {"origin", kiln::to_string(each.origin)},
                               {"stale", each.stale},
                               {"kept", each.kept},
                               {"implementation", or_null(each.implementation)},
                               {"config", or_null(each.config)},
                               {"configs", each.configs},
                               {"cost_ns", each.cost_ns},
                               {"baseline_ns", each.baseline_ns},
                               {"reason", or_null(each.reason)},
                               {"wrong", each.wrong}});
  return json;
}

Json to_json(const Deployment& deployment) {
  Json json{{"device_class", deployment.device_class},
            {"arch", deployment.arch},
            {"buckets", deployment.buckets},
            {"stale", deployment.stale},
            {"missing", Json::array()},
            {"cubins", deployment.cubins},
            {"compiled", deployment.compiled},
            {"image_bytes", deployment.image_bytes}};
  for (const Deployment::Missing& each : deployment.missing)
    json["missing"].push_back({{"op", each.op}, {"bucket", each.bucket}, {"why", each.why}});
  return json;
}

}  // namespace kiln::c
