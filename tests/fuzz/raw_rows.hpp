// Rows written past Kiln, by SQL, with digests as cache/README.md defines them: what a hostile hand could do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include "spec/key.hpp"

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
  /// Inserts the row with its right digest; `prefix` are digested fields that are no columns. False when SQLite refuses
  /// it, as it does a NaN. `id` is the new row's.
  bool insert(const std::string& table, const Row& row, const Row& prefix = {}, std::int64_t* id = nullptr);
  void execute(const char* sql);

 private:
  sqlite3* database_ = nullptr;
};

}  // namespace kiln::fuzz
