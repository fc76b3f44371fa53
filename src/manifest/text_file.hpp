// Reads text files that a user names, up to a size limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>

namespace kiln::manifest {

/// Throws Error(bad_input) for a pipe, a device, a folder or a socket, whose reading may block or never end. A missing
/// file passes.
void check_regular_file(const std::filesystem::path& path);

/// Reads the whole file. Throws Error(io) when it cannot be read, Error(bad_input) as check_regular_file does, for more
/// than `most` bytes, and with the line's number for a NUL byte.
std::string read_text_file(const std::filesystem::path& path, std::size_t most);

/// Reads the next line without its end. Returns false at the end of the stream. Throws Error(bad_input) with `name` and
/// `number` for a line of more than `most` bytes or with a NUL byte, and Error(io) when the stream cannot be read.
bool read_line(std::istream& from, std::string& line, std::size_t most, const std::string& name, std::int64_t number);

}  // namespace kiln::manifest
