#include "raw_rows.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "support.hpp"

namespace kiln::fuzz {
namespace {

struct Statement {
  sqlite3_stmt* handle = nullptr;
  Statement(sqlite3* database, const std::string& sql) {
    require(sqlite3_prepare_v2(database, sql.c_str(), -1, &handle, nullptr) == SQLITE_OK, sqlite3_errmsg(database));
  }
  ~Statement() { sqlite3_finalize(handle); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int at, const Cell& cell) const {
    std::visit([&](const auto& value) { bind_value(at, value); }, cell);
  }
  void bind_value(int at, std::int64_t value) const { sqlite3_bind_int64(handle, at, value); }
  void bind_value(int at, double value) const { sqlite3_bind_double(handle, at, value); }
  void bind_value(int at, const std::string& value) const {
    sqlite3_bind_text(handle, at, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
  }
  void bind_value(int at, const Blob& value) const {
    sqlite3_bind_blob(handle, at, value.empty() ? "" : static_cast<const void*>(value.data()),
                      static_cast<int>(value.size()), SQLITE_TRANSIENT);
  }
};

void digest_cell(manifest::Hasher& hasher, const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) hasher.field(*number);
  if (const auto* real = std::get_if<double>(&cell))
    hasher.field(std::bit_cast<std::int64_t>(*real == 0 ? 0.0 : *real));
  if (const auto* text = std::get_if<std::string>(&cell)) hasher.field(std::string_view(*text));
  if (const auto* blob = std::get_if<Blob>(&cell)) hasher.field(std::span<const std::byte>(*blob));
}

std::int64_t random_integer(FuzzedDataProvider& data) {
  using Limits = std::numeric_limits<std::int64_t>;
  switch (data.ConsumeIntegralInRange(0, 3)) {
    case 0: return data.ConsumeIntegralInRange<std::int64_t>(0, 3);
    case 1: return data.ConsumeIntegralInRange<std::int64_t>(-1, 100'000);
    case 2:
      return data.PickValueInArray({Limits::min(), Limits::max(), std::int64_t{1} << 31, -(std::int64_t{1} << 32)});
    default: return data.ConsumeIntegral<std::int64_t>();
  }
}

double random_real(FuzzedDataProvider& data) {
  switch (data.ConsumeIntegralInRange(0, 2)) {
    case 0: return data.ConsumeIntegralInRange<int>(0, 1'000'000) / 8.0;
    case 1: return data.ConsumeProbability<double>();
    default: return std::bit_cast<double>(data.ConsumeIntegral<std::uint64_t>());
  }
}

Cell random_cell(std::string_view type, FuzzedDataProvider& data) {
  if (type == "INTEGER") return random_integer(data);
  if (type == "REAL") return random_real(data);
  std::string bytes = data.ConsumeRandomLengthString(64);
  if (type == "TEXT") return bytes;
  const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  return Blob(first, first + bytes.size());
}

}  // namespace

const Cell& cell_of(const Row& row, std::string_view column) {
  const auto found = std::ranges::find(row, column, &NamedCell::column);
  require(found != row.end(), "a table has the columns that its rows are judged by");
  return found->cell;
}

RawFile::RawFile(const std::filesystem::path& path) {
  require(sqlite3_open(path.c_str(), &database_) == SQLITE_OK, "the file can be opened as a database");
  execute("PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON");
}

RawFile::~RawFile() { sqlite3_close(database_); }

void RawFile::execute(const char* sql) {
  require(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK, sqlite3_errmsg(database_));
}

void RawFile::clear() {
  execute(
      "DELETE FROM choice; DELETE FROM candidate; DELETE FROM record; DELETE FROM image; DELETE FROM cubin; DELETE FROM lease; "
      "DELETE FROM histogram; DELETE FROM usage; DELETE FROM quarantine; DELETE FROM manifest; DELETE FROM signature");
}

Row RawFile::random_row(const std::string& table, FuzzedDataProvider& data, const Row& given) const {
  const Statement columns(database_, "SELECT name, type FROM pragma_table_info('" + table + "')");
  const auto text = [&](int column) {
    return std::string(reinterpret_cast<const char*>(sqlite3_column_text(columns.handle, column)));
  };
  Row row;
  while (sqlite3_step(columns.handle) == SQLITE_ROW) {
    const std::string name = text(0);
    if (name == "id" || name == "digest") continue;
    const auto found = std::ranges::find(given, name, &NamedCell::column);
    row.push_back(found != given.end() ? *found : NamedCell{name, random_cell(text(1), data)});
  }
  return row;
}

std::optional<std::int64_t> RawFile::insert(const std::string& table, const Row& row, const std::vector<Cell>& before,
                                            const std::vector<Cell>& after) {
  manifest::Hasher hasher;
  hasher.field(std::string_view(table));
  for (const Cell& each : before) digest_cell(hasher, each);
  std::string columns, marks;
  for (const NamedCell& each : row) {
    // A candidate's digest has its record's key, not that record's number in this file.
    if (table != "candidate" || each.column != "record") digest_cell(hasher, each.cell);
    columns += each.column + ", ";
    marks += "?, ";
  }
  for (const Cell& each : after) digest_cell(hasher, each);
  const auto digest = hasher.finish();
  const Statement statement(database_, "INSERT INTO " + table + " (" + columns + "digest) VALUES (" + marks + "?)");
  int at = 0;
  for (const NamedCell& each : row) statement.bind(++at, each.cell);
  statement.bind(++at, Blob(digest.begin(), digest.end()));
  if (sqlite3_step(statement.handle) != SQLITE_DONE) return std::nullopt;
  return sqlite3_last_insert_rowid(database_);
}

bool RawFile::insert_plain(const std::string& table, const Row& row) {
  std::string columns, marks;
  for (const NamedCell& each : row) {
    columns += (columns.empty() ? "" : ", ") + each.column;
    marks += marks.empty() ? "?" : ", ?";
  }
  const Statement statement(database_, "INSERT INTO " + table + " (" + columns + ") VALUES (" + marks + ")");
  int at = 0;
  for (const NamedCell& each : row) statement.bind(++at, each.cell);
  return sqlite3_step(statement.handle) == SQLITE_DONE;
}

void RawFile::insert_image(std::int64_t cubin, const Blob& frame) {
  const Statement statement(database_, "INSERT INTO image (cubin, frame) VALUES (?, ?)");
  statement.bind(1, cubin);
  statement.bind(2, frame);
  require(sqlite3_step(statement.handle) == SQLITE_DONE, "an image can be inserted");
}

}  // namespace kiln::fuzz
