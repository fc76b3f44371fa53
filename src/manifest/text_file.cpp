#include "manifest/text_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <istream>
#include <string_view>

#include "kiln/error.hpp"
#include "manifest/shortage.hpp"

namespace kiln::manifest {
namespace {

namespace fs = std::filesystem;

std::string_view described(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory: return "a folder";
    case fs::file_type::fifo: return "a pipe";
    case fs::file_type::block:
    case fs::file_type::character: return "a device";
    default: return "no file";
  }
}

/// Parsers take a NUL for the end of the text, so what follows one would be lost in silence.
void refuse_nul(std::string_view text, const std::string& name, std::int64_t first_line) {
  const auto at = text.find('\0');
  if (at == std::string_view::npos) return;
  const std::string_view before = text.substr(0, at);
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{}:{}: found a NUL byte, which no text holds; is this another kind of file, was it cut, or is "
                  "it UTF-16?",
                  name, first_line + std::ranges::count(before, '\n')));
}

}  // namespace

void check_regular_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_type type = fs::status(path, ignored).type();
  if (type == fs::file_type::regular || type == fs::file_type::not_found || type == fs::file_type::none) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("'{}' is {}, which is not read; give a regular file", path.string(), described(type)));
}

std::string read_text_file(const fs::path& path, std::size_t most) {
  check_regular_file(path);
  std::ifstream file(path, std::ios::binary);
  const std::string why = file.is_open() ? std::string() : ": " + refusal_text(errno);
  std::string text;
  std::array<char, 1 << 14> part;
  while (text.size() <= most && (file.read(part.data(), part.size()), file.gcount() > 0))
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad())
    throw Error(ErrorKind::io, fmt::format("'{}' cannot be read{}", path.string(), file.is_open() ? "" : why));
  if (text.size() > most)
    throw Error(ErrorKind::bad_input,
                fmt::format("{}:1: the file has more than {} bytes, the most that is read", path.string(), most));
  refuse_nul(text, path.string(), 1);
  return text;
}

bool read_line(std::istream& from, std::string& line, std::size_t most, const std::string& name, std::int64_t number) {
  line.clear();
  std::array<char, 1 << 12> part;
  for (;;) {
    from.getline(part.data(), part.size());
    const auto read = static_cast<std::size_t>(from.gcount());
    const bool goes_on = from.fail() && read == part.size() - 1;
    const bool has_end = from.good();
    if (goes_on) from.clear(from.rdstate() & ~std::ios::failbit);
    line.append(part.data(), has_end ? read - 1 : read);
    if (line.size() > most)
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}:{}: the line has more than {} bytes, the most that is read", name, number, most));
    if (goes_on) continue;
    if (from.bad()) throw Error(ErrorKind::io, fmt::format("'{}' cannot be read to its end", name));
    refuse_nul(line, name, number);
    return !from.fail();
  }
}

}  // namespace kiln::manifest
