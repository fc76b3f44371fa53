#include "process/message.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "process/identity.hpp"

namespace kiln::process {

using Json = nlohmann::json;

namespace {

constexpr int deepest = 64;

/// Ends a parse at the first list or object that is nested too deep.
class DepthCheck final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= deepest; }
  bool start_array(std::size_t) override { return ++depth_ <= deepest; }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  int depth_ = 0;
};

}  // namespace

Json greeting() { return {{"kiln-worker", identity()}}; }

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

std::optional<Json> read_cbor(std::span<const unsigned char> bytes) {
  DepthCheck depth;
  if (!Json::sax_parse(bytes.begin(), bytes.end(), &depth, Json::input_format_t::cbor)) return std::nullopt;
  Json json = Json::from_cbor(bytes.begin(), bytes.end(), true, false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

Json unpacked(std::string_view text) {
  std::optional<Json> json = read_cbor({reinterpret_cast<const unsigned char*>(text.data()), text.size()});
  if (!json) throw Error(ErrorKind::io, "a rank sent what is no message; run the same Kiln on all ranks");
  return std::move(*json);
}

Json to_json(const Error& error) {
  return {{"error", {{"kind", static_cast<int>(error.kind())}, {"message", error.what()}}}};
}

void rethrow(const Json& json) {
  if (!json.contains("error")) return;
  const Json& error = json.at("error");
  const int kind = error.at("kind").get<int>();
  if (kind < 0 || kind > static_cast<int>(ErrorKind::team_failed))  // the last
    throw std::runtime_error("its error has no such kind");
  throw Error(static_cast<ErrorKind>(kind), error.at("message").get<std::string>());
}

}  // namespace kiln::process
