#include "faults/engine/liar/lies.hpp"

#include <cstring>
#include <limits>

namespace kiln::faults {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<unsigned char>;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

Bytes framed(std::uint64_t length, Bytes body) {
  Bytes frame(sizeof length);
  std::memcpy(frame.data(), &length, sizeof length);
  frame.insert(frame.end(), body.begin(), body.end());
  return frame;
}
Bytes framed(const Bytes& body) { return framed(body.size(), body); }
Bytes framed(const Json& json) { return framed(Json::to_cbor(json)); }

Json error_of_kind(const Json& kind, const Json& message = "x") {
  return {{"error", {{"kind", kind}, {"message", message}}}};
}

Json with(Json json, const char* name, const Json& value) {
  json[name] = value;
  return json;
}

/// The honest answer to a message about one point or name, one field of which is something else.
std::vector<Json> other_fields(Asked asked) {
  const Json answer = honest(asked, {{"sample", {1}}});
  std::vector<Json> lies;
  const auto add = [&](const char* name, std::initializer_list<Json> values) {
    for (const Json& value : values) lies.push_back(with(answer, name, value));
  };
  const auto add_sample = [&](const Json& sample) { lies.push_back({{"samples", Json::array({sample})}}); };
  switch (asked) {
    case Asked::begin: add("prepared_ns", {nullptr, "x", nan, infinity, -1.0, Json::array()}); break;
    case Asked::greeting:
    case Asked::lengths: break;
    case Asked::admit:
      add("verdict", {nullptr, "ok", -1, 2, 4, 99, nan, 1e300});
      add("reason", {nullptr, 1, Json::array()});
      add("registers", {nullptr, "x", nan, 1e300, -1, std::int64_t{1} << 40});
      add("spill_bytes", {nullptr, infinity, -1});
      break;
    case Asked::sample:
      add("samples", {nullptr, "x", 1, Json::array(), Json::object()});
      add_sample(nullptr);
      add_sample(Json::object());
      for (const Json& ns :
           {Json("x"), Json(Json::array({nullptr})), Json(Json::array({"x"})), Json(Json::array({Json::array()}))})
        add_sample({{"ns", ns}, {"failure", ""}});
      add_sample({{"ns", Json::array()}, {"failure", 1}});
      lies.push_back({{"samples", Json::array({answer["samples"][0], answer["samples"][0]})}});
      break;
    case Asked::compile:
      add("image", {nullptr, "x", Json::array(), Json::binary({})});
      add("lowered", {nullptr, "x", Json::array({"a", "b", "c"}), Json::array({1})});
      add("compile_ns", {nullptr, "x", Json::array()});
      break;
  }
  return lies;
}

}  // namespace

Asked kind_of(const Json& message) {
  if (message.contains("files")) return Asked::begin;
  if (message.contains("lengths")) return Asked::lengths;
  if (message.contains("admit")) return Asked::admit;
  return message.contains("sample") ? Asked::sample : Asked::compile;
}

Json honest(Asked asked, const Json& message) {
  switch (asked) {
    case Asked::begin: return {{"ready", true}, {"prepared_ns", 1.0}};
    case Asked::greeting: break;
    case Asked::lengths: return {{"known", true}};
    case Asked::admit: return {{"verdict", 0}, {"reason", ""}, {"registers", 32}, {"spill_bytes", 0}};
    case Asked::sample: {
      Json list = Json::array();
      for (std::size_t i = 0; i < message.at("sample").size(); ++i)
        list.push_back({{"ns", {1000.0, 1001.0}}, {"failure", ""}});
      return {{"samples", list}};
    }
    case Asked::compile:
      return {{"image", Json::binary({1})}, {"lowered", Json::array()}, {"log", ""}, {"compile_ns", 1}};
  }
  return {};
}

std::vector<Lie> lies_about(Asked asked) {
  constexpr std::size_t depth = 100'000;
  std::vector<Lie> lies = {{framed(100, {1, 2}), true}, {Bytes(3, 0), true}, {{}, true}};
  for (const Bytes& body : {Bytes(depth, 0x81), Bytes(depth, 0x9f), Bytes(), Bytes(16, 0xff)})
    lies.push_back({framed(body)});
  lies.push_back({framed(~std::uint64_t{0}, {})});
  Bytes maps = {0xa1, 0x61, 'a'};  // {"a": {"a": ...
  while (maps.size() < 3 * depth) {
    const Bytes half = maps;
    maps.insert(maps.end(), half.begin(), half.end());
  }
  lies.push_back({framed(maps)});
  std::vector<Json> values = {error_of_kind(1000), error_of_kind(-1),    error_of_kind("x"),
                              error_of_kind(1, 1), {{"error", nullptr}}, {{"error", Json::object()}}};
  if (asked != Asked::lengths)  // any value confirms
    for (const Json& each : {Json(), Json(nan), Json("x"), Json(true), Json(Json::array()), Json(Json::object())})
      values.push_back(each);
  for (Json& each : other_fields(asked)) values.push_back(std::move(each));
  for (const Json& each : values) lies.push_back({framed(each)});
  return lies;
}

}  // namespace kiln::faults
