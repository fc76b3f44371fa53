#include "process/message.hpp"

#include <cstring>

namespace kiln::process {

using Json = nlohmann::json;

Json greeting() { return {{"kiln-worker", KILN_VERSION}}; }

Json to_json(std::span<const manifest::SourceFile> files) {
  Json list = Json::array();
  for (const manifest::SourceFile& file : files) list.push_back({file.name, std::string_view(file.text)});
  return list;
}

std::vector<manifest::SourceFile> files_from_json(const Json& json) {
  std::vector<manifest::SourceFile> files;
  for (const Json& file : json) files.push_back({file.at(0), file.at(1).get<std::string>()});
  return files;
}

Json to_json(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return Json::binary({first, first + bytes.size()});
}

std::vector<std::byte> bytes_from_json(const Json& json) {
  const auto& binary = json.get_binary();
  std::vector<std::byte> bytes(binary.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), binary.data(), bytes.size());
  return bytes;
}

std::string packed(const Json& json) {
  const std::vector<std::uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

Json unpacked(std::string_view text) { return Json::from_cbor(text); }

Json to_json(const Error& error) {
  return {{"error", {{"kind", static_cast<int>(error.kind())}, {"message", error.what()}}}};
}

void rethrow(const Json& json) {
  if (!json.contains("error")) return;
  const Json& error = json.at("error");
  throw Error(static_cast<ErrorKind>(error.at("kind").get<int>()), error.at("message").get<std::string>());
}

}  // namespace kiln::process
