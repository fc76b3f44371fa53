// Text files that a user names, read within bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>

namespace kiln::manifest {

/// Throws Error(bad_input) for a pipe, a device, a folder or a socket: reading it may wait, or never end. What does not exist passes.
void check_regular_file(const std::filesystem::path& path);

/// The whole file. Throws Error(io) when it cannot be read, and Error(bad_input) as check_regular_file does, or when the file has more than
/// `most` bytes.
std::string read_text_file(const std::filesystem::path& path, std::size_t most);

/// Reads the next line without its end. False at the end of the stream. Throws Error(bad_input) naming `name` and `number` for a line of more
/// than `most` bytes.
bool read_line(std::istream& from, std::string& line, std::size_t most, const std::string& name, std::int64_t number);

}  // namespace kiln::manifest
