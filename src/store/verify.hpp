// Everything that a file holds, read and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/migration.hpp"
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
  std::vector<RowFlaw> first;      // of the flaws, as many as were asked for
  std::vector<std::string> notes;  // no faults, but worth knowing
  Seal seal;                       // its signatures were verified over the manifest
  [[nodiscard]] bool is_sound() const noexcept { return flaws == 0; }
};

/// Opens the file for reading only and does not change it. Checked are: SQLite's own structure and indexes; that choices,
/// candidates and images belong to a record and a cubin; each row's digest and values; that machine code unpacks; the seal and its
/// signatures. Memory stays bounded. Throws as File::open does for a file that is refused whole, and Error(io) when it cannot
/// be read.
Verification verify(const std::filesystem::path& path, std::size_t most_flaws = 20,
                    const Format& format = present_format());

}  // namespace kiln::store
