// Checks all the content of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/format.hpp"
#include "store/seal.hpp"

namespace kiln::store {

struct RowFlaw {
  std::string table, key, reason;
};

struct TableCount {
  std::string table;
  std::int64_t rows = 0;
};

struct Verification {
  std::uint32_t version = 0;       // of the file's format
  std::vector<TableCount> tables;  // in the order of the schema
  std::int64_t flaws = 0;
  std::vector<RowFlaw> first;      // the first `most_flaws` of them
  std::vector<std::string> notes;  // findings that are no flaws
  Seal seal;
  [[nodiscard]] bool is_sound() const noexcept { return flaws == 0; }
};

/// Opens the file read-only and checks SQLite's structure and indexes, foreign keys, and each row's digest and values.
/// Also decompresses the images, and verifies the seal and its signatures. Memory is bounded. Throws as File::open
/// does, and Error(io) when the file cannot be read.
Verification verify(const std::filesystem::path& path, std::size_t most_flaws = 20,
                    const Format& format = present_format());

}  // namespace kiln::store
