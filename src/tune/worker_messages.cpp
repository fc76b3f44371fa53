#include "tune/worker_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "process/message.hpp"

namespace kiln::tune {
namespace {

using Json = nlohmann::json;

double number(const Json& json) {
  if (!json.is_number()) throw std::runtime_error(fmt::format("it has {} in place of a number", json.type_name()));
  return json.get<double>();
}

/// A conversion of other types, such as NaN to an integer, would be undefined.
std::int64_t integer(const Json& json, const char* name, std::int64_t least, std::int64_t most) {
  const Json& value = json.at(name);
  const auto found = value.is_number_integer() ? value.get<std::int64_t>() : least - 1;
  if (found < least || found > most)
    throw std::runtime_error(fmt::format("its '{}' is no integer from {} to {}", name, least, most));
  return found;
}

}  // namespace

Json to_json(const store::CubinRow& row) {
  return {{"key", process::to_json(std::span<const std::byte>(row.key))},
          {"op", row.op},
          {"source_digest", row.source_digest},
          {"label", row.label},
          {"arch", row.arch},
          {"compiler", row.compiler},
          {"names", row.name_expressions},
          {"lowered", row.lowered_names},
          {"image", process::to_json(std::span<const std::byte>(row.image))}};
}

store::CubinRow cubin_from_json(const Json& json) {
  store::CubinRow row;
  const auto key = process::bytes_from_json(json.at("key"));
  std::copy_n(key.begin(), std::min(key.size(), row.key.size()), row.key.begin());
  row.op = json.at("op");
  row.source_digest = json.at("source_digest");
  row.label = json.at("label");
  row.arch = json.at("arch");
  row.compiler = json.at("compiler");
  row.name_expressions = json.at("names").get<std::vector<std::string>>();
  row.lowered_names = json.at("lowered").get<std::vector<std::string>>();
  row.image = process::bytes_from_json(json.at("image"));
  return row;
}

Json to_json(const BenchSettings& settings, const std::vector<store::CubinRow>& cubins) {
  std::vector<manifest::SourceFile> files = settings.bucket.op->manifests;
  files.insert(files.end(), settings.bucket.op->files.begin(), settings.bucket.op->files.end());
  Json json{{"op", settings.bucket.op->name},
            {"folder", settings.bucket.op->folder},
            {"files", process::to_json(files)},
            {"axes", settings.bucket.edge.axes},
            {"selections", settings.bucket.edge.selections},
            {"device", settings.device.ordinal},
            {"hot_l2", settings.bucket.regime == Regime::hot_l2},
            {"arch", settings.arch},
            {"cubins", Json::array()}};
  for (const store::CubinRow& row : cubins) json["cubins"].push_back(to_json(row));
  return json;
}

Begin begin_from_json(const Json& json) {
  Begin begin;
  begin.op = manifest::parse_op(json.at("op").get<std::string>(), json.at("folder").get<std::string>(),
                                process::files_from_json(json.at("files")));
  json.at("axes").get_to(begin.bucket.axes);
  json.at("selections").get_to(begin.bucket.selections);
  begin.device = json.at("device");
  begin.regime = json.at("hot_l2").get<bool>() ? Regime::hot_l2 : Regime::cold_l2;
  begin.arch = json.at("arch");
  if (json.contains("seed")) begin.seed = json.at("seed").get<std::uint64_t>();
  for (const Json& row : json.at("cubins")) begin.cubins.push_back(cubin_from_json(row));
  return begin;
}

Json to_json(std::span<const Problem> sizes) {
  Json list = Json::array();
  for (const Problem& size : sizes) list.push_back(size.axes);
  return list;
}

std::vector<Problem> sizes_from_json(const Problem& bucket, const Json& json) {
  std::vector<Problem> sizes;
  for (const Json& axes : json) axes.get_to(sizes.emplace_back(bucket).axes);
  return sizes;
}

Json to_json(std::size_t candidate, const Trial& trial) {
  return {{"admit", candidate},
          {"implementation", trial.variant.implementation->name},
          {"config", trial.variant.config},
          {"axes", trial.at.axes},
          {"image", process::to_json(std::span<const std::byte>(trial.cubin.image))},
          {"lowered", trial.cubin.lowered_names}};
}

OwnedTrial trial_from_json(const manifest::Op& op, const Problem& bucket, const Json& json) {
  OwnedTrial trial;
  trial.variant.implementation = op.find(json.at("implementation").get<std::string>());
  if (!trial.variant)
    throw Error(ErrorKind::bad_input, "the worker was asked for an implementation that the op does not have");
  trial.variant.config = json.at("config").get<manifest::Config>();
  trial.at = bucket;
  json.at("axes").get_to(trial.at.axes);
  trial.cubin.image = process::bytes_from_json(json.at("image"));
  trial.cubin.lowered_names = json.at("lowered").get<std::vector<std::string>>();
  return trial;
}

Json to_json(std::span<const Point> points) {
  Json list = Json::array();
  for (const Point& each : points) list.push_back({each.candidate, each.size});
  return list;
}

std::vector<Point> points_from_json(const Json& json) {
  std::vector<Point> points;
  for (const Json& each : json) points.push_back({each.at(0), each.at(1)});
  return points;
}

Json to_json(const Admission& admission) {
  return {{"verdict", static_cast<int>(admission.verdict)},
          {"reason", admission.reason},
          {"registers", admission.registers},
          {"spill_bytes", admission.spill_bytes}};
}

Admission admission_from_json(const Json& json) {
  const auto verdict =
      static_cast<store::Verdict>(integer(json, "verdict", 0, static_cast<int>(store::Verdict::launch_failed)));
  if (verdict == store::Verdict::compile_failed) throw std::runtime_error("its verdict is compile_failed");
  return {verdict, json.at("reason"), static_cast<int>(integer(json, "registers", 0, std::numeric_limits<int>::max())),
          integer(json, "spill_bytes", 0, std::numeric_limits<std::int64_t>::max())};
}

Json to_json(const std::vector<Samples>& samples) {
  Json list = Json::array();
  for (const Samples& each : samples) list.push_back({{"ns", each.ns}, {"failure", each.failure}});
  return {{"samples", list}};
}

std::vector<Samples> samples_from_json(const Json& json, std::size_t points) {
  std::vector<Samples> samples;
  const Json& list = json.at("samples");
  if (!list.is_array() || list.size() != points)
    throw std::runtime_error(fmt::format("it has samples of {} points, and {} were asked for", list.size(), points));
  for (const Json& each : list) {
    Samples& some = samples.emplace_back();
    for (const Json& ns : each.at("ns")) some.ns.push_back(number(ns));
    each.at("failure").get_to(some.failure);
  }
  return samples;
}

double prepared_ns_from_json(const Json& json) {
  const double ns = number(json.at("prepared_ns"));
  if (!is_time(ns)) throw std::runtime_error(fmt::format("it took {} ns to prepare, expected a time", ns));
  return ns;
}

}  // namespace kiln::tune
