#include "manifest/text_file.hpp"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <istream>
#include <string_view>

#include "kiln/error.hpp"

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
  std::string text;
  std::array<char, 1 << 14> part;
  while (text.size() <= most && (file.read(part.data(), part.size()), file.gcount() > 0))
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) throw Error(ErrorKind::io, fmt::format("'{}' cannot be read", path.string()));
  if (text.size() > most)
    throw Error(ErrorKind::bad_input,
                fmt::format("{}:1: the file has more than {} bytes, the most that is read", path.string(), most));
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
    if (!goes_on) return !from.fail();
  }
}

}  // namespace kiln::manifest
