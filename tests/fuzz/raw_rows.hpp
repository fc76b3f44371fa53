// Rows written past Kiln, by SQL, with digests as cache/README.md defines them: what a hostile hand could do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include "manifest/key.hpp"

struct sqlite3;

namespace kiln::fuzz {

using Blob = std::vector<std::byte>;
using Cell = std::variant<std::int64_t, double, std::string, Blob>;

struct NamedCell {
  std::string column;
  Cell cell;
};
using Row = std::vector<NamedCell>;  // without id and digest

const Cell& cell_of(const Row& row, std::string_view column);

class RawFile {
 public:
  explicit RawFile(const std::filesystem::path& path);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  /// Deletes the rows of every table.
  void clear();
  /// In the order of the table: what is given, and any value for every other column.
  [[nodiscard]] Row random_row(const std::string& table, FuzzedDataProvider& data, const Row& given = {}) const;
  /// Inserts the row with its right digest; `before` and `after` are digested fields that are no columns. Nothing when
  /// SQLite refuses it, as it does a NaN; else the new row's id.
  std::optional<std::int64_t> insert(const std::string& table, const Row& row, const std::vector<Cell>& before = {},
                                     const std::vector<Cell>& after = {});
  /// Inserts a row of a table whose rows have no digest. False when SQLite refuses it.
  bool insert_plain(const std::string& table, const Row& row);
  void insert_image(std::int64_t cubin, const Blob& frame);
  void execute(const char* sql);

 private:
  sqlite3* database_ = nullptr;
};

}  // namespace kiln::fuzz
