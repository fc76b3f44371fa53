// Sample files, and what is in a file by a reader that has none of Kiln's mercy.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "store/support.hpp"

namespace kiln::store {

/// For how long processes go at a file: $KILN_HAMMER_SECONDS, else `usual` seconds.
inline std::chrono::seconds hammer_time(int usual) {
  const char* seconds = std::getenv("KILN_HAMMER_SECONDS");
  return std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : usual);
}

inline std::string sample_key(int at) { return "key" + std::to_string(at); }
inline Record sample_record_at(int at) { return sample_record(sample_key(at), 100 + at); }
inline CubinRow sample_cubin_at(int at, std::size_t bytes = 500) { return sample_cubin(std::to_string(at), bytes); }

/// A file of `records` records, each with three choices, two candidates and a cubin. Their numbers are 1, 2, ...
inline std::filesystem::path sample_file(const std::filesystem::path& path, int records = 3,
                                         std::size_t cubin_bytes = 500) {
  std::vector<Record> all;
  std::vector<CubinRow> cubins;
  for (int at = 0; at < records; ++at) {
    all.push_back(sample_record_at(at));
    cubins.push_back(sample_cubin_at(at, cubin_bytes));
  }
  File::open(path, Access::read_write)->put_all(all, cubins);
  return path;
}

/// The rows of a query as text, "a|b" a line; "unreadable: ..." when SQLite refuses. As another program would read.
inline std::string rows_of(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* database = nullptr;
  std::string rows;
  const auto append = [](void* to, int columns, char** values, char**) {
    auto& text = *static_cast<std::string*>(to);
    for (int column = 0; column < columns; ++column)
      text.append(column > 0 ? "|" : "").append(values[column] != nullptr ? values[column] : "NULL");
    text += '\n';
    return 0;
  };
  int code = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE, nullptr);
  sqlite3_busy_timeout(database, 5000);
  if (code == SQLITE_OK) code = sqlite3_exec(database, sql.c_str(), append, &rows, nullptr);
  if (code != SQLITE_OK) rows += std::string("unreadable: ") + sqlite3_errmsg(database) + "\n";
  sqlite3_close(database);
  return rows;
}

/// What a file holds, to compare by: each row by its key and digest, or whatever of it does not vary from run to run.
inline std::string content_of(const std::filesystem::path& path) {
  return rows_of(
      path,
      "PRAGMA quick_check; PRAGMA user_version;"
      "SELECT 'record', key, hex(digest) FROM record ORDER BY key;"
      "SELECT 'choice', key, position, role, sizes, config, cost_ns, samples FROM choice JOIN record ON id = record "
      "ORDER BY key, position;"
      "SELECT 'candidate', key, position, hex(candidate.digest) FROM candidate JOIN record ON id = record "
      "ORDER BY key, position;"
      "SELECT 'cubin', hex(key), hex(digest) FROM cubin ORDER BY key;"
      "SELECT 'lease', record_key, holder FROM lease ORDER BY record_key;"
      "SELECT 'histogram', op, problem, launches FROM histogram ORDER BY op, problem;"
      "SELECT 'quarantine', source, key FROM quarantine ORDER BY id;"
      "SELECT 'manifest', source, hex(digest) FROM manifest ORDER BY source;"
      "SELECT 'image', hex(key), length(frame) FROM cubin LEFT JOIN image ON cubin = id ORDER BY key;");
}

inline std::string quick_check(const std::filesystem::path& path) { return rows_of(path, "PRAGMA quick_check"); }

/// Refused with these words, for reading and for writing, and not changed by it.
inline void check_refused(const std::filesystem::path& path, std::string_view words) {
  const auto before = bytes_of(path);
  for (const Access access : {Access::read_only, Access::read_write}) {
    const auto found = refusal([&] { File::open(path, access); });
    CAPTURE(found);
    CHECK(contains(found, "bad_file: '" + path.string()));
    CHECK(contains(found, words));
  }
  CHECK(bytes_of(path) == before);
}

}  // namespace kiln::store
