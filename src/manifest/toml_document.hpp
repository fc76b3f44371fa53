// A TOML text as plain values in its order, each with its line. No other header includes the TOML library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/line.hpp"

namespace kiln::manifest {

struct TomlEntry;

struct TomlValue {
  enum class Kind : std::uint8_t { text, integer, real, boolean, array, table, time };
  Kind kind = Kind::table;
  Line line;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::vector<TomlValue> items;    // of an array
  std::vector<TomlEntry> entries;  // of a table

  [[nodiscard]] const TomlValue* find(std::string_view key) const noexcept;
  /// The value for a message, after "found": "'abc'", "the number 3", "a table".
  [[nodiscard]] std::string described() const;
};

struct TomlEntry {
  std::string key;
  TomlValue value;
};

/// Throws Error(bad_manifest): "FILE:LINE: the TOML library's message", or the bound of manifest/limits.hpp that the
/// text exceeds.
TomlValue parse_toml(std::string_view file, std::string_view text);
/// Reads likewise a part, whose lines name `file`.
TomlValue parse_toml_part(std::string_view file, std::string_view text);

}  // namespace kiln::manifest
