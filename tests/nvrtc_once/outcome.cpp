#include "nvrtc_once/outcome.hpp"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace nvrtc_once {
namespace {

namespace fs = std::filesystem;

void append(std::string& bytes, std::uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// Taken from the front of `bytes`; nothing where they end before.
std::optional<std::uint64_t> take_number(std::string_view& bytes) {
  std::uint64_t number = 0;
  if (bytes.size() < sizeof number) return std::nullopt;
  bytes.copy(reinterpret_cast<char*>(&number), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}
std::optional<std::string> take_text(std::string_view& bytes) {
  const std::optional<std::uint64_t> length = take_number(bytes);
  if (!length || *length > bytes.size()) return std::nullopt;
  std::string text(bytes.substr(0, *length));
  bytes.remove_prefix(*length);
  return text;
}

}  // namespace

std::optional<Outcome> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string held{std::istreambuf_iterator<char>(file), {}};
  std::string_view bytes = held;
  const std::optional<std::uint64_t> count = take_number(bytes);
  if (!count || *count < 2) return std::nullopt;
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < *count; ++i) {
    std::optional<std::string> text = take_text(bytes);
    if (!text) return std::nullopt;
    texts.push_back(std::move(*text));
  }
  return Outcome{NVRTC_SUCCESS, texts[0], texts[1], {texts.begin() + 2, texts.end()}};
}

void write(const std::string& path, const Outcome& success) {
  std::string bytes;
  append(bytes, 2 + success.lowered_names.size());
  const auto append_text = [&](const std::string& text) { append(bytes, text.size()), bytes += text; };
  append_text(success.log);
  append_text(success.cubin);
  for (const std::string& name : success.lowered_names) append_text(name);
  std::error_code failure;
  fs::create_directories(fs::path(path).parent_path(), failure);
  std::string own = path + ".XXXXXX";
  const int descriptor = mkstemp(own.data());
  if (descriptor < 0) return;
  close(descriptor);
  std::ofstream file(own, std::ios::binary);
  file << bytes;
  file.close();
  if (file) fs::rename(own, path, failure);
  if (!file || failure) fs::remove(own, failure);
}

}  // namespace nvrtc_once
