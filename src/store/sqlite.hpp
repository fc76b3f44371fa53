// A wrapper of SQLite: statements are prepared once, parameters are bound, failures are thrown as SqliteFailure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "store/guards.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace kiln::store {

/// A failed call of SQLite. A File converts it to a kiln::Error or to a miss.
class SqliteFailure : public std::runtime_error {
 public:
  /// `system_error` is the errno of the call that failed, or 0.
  SqliteFailure(int code, const std::string& message, int system_error = 0)
      : std::runtime_error(message), code_(code), system_error_(system_error) {}
  /// The file's content is damaged, so that another read would fail too.
  [[nodiscard]] bool damaged() const noexcept;
  /// The row exceeds max_row_bytes.
  [[nodiscard]] bool too_big() const noexcept;
  /// Another connection holds the lock.
  [[nodiscard]] bool is_locked() const noexcept;
  /// The same call may succeed a moment later: another's lock, or too many open files.
  [[nodiscard]] bool is_temporary() const noexcept;
  /// This process lacks a permission on the file, its folder or its journal.
  [[nodiscard]] bool forbidden() const noexcept;
  /// A file, such as the journal, could not be opened or made. SQLite may give another reason than the first one.
  [[nodiscard]] bool cannot_open() const noexcept;
  /// Returns what failed and what to do, for a message.
  [[nodiscard]] std::string in_words() const;

 private:
  [[nodiscard]] bool is_disk_full() const noexcept;
  [[nodiscard]] bool has_too_many_files() const noexcept;
  int code_, system_error_;
};

/// One use of a prepared statement. The destructor resets it, so that it holds no lock. Functions throw SqliteFailure.
class Query {
 public:
  explicit Query(sqlite3_stmt* statement) noexcept : statement_(statement) {}
  Query(Query&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)), bound_(other.bound_) {}
  Query& operator=(Query&&) = delete;
  ~Query();

  /// Each call binds the next parameter. Text and blobs are not copied: they must outlive the Query.
  Query& bind(std::string_view text);
  Query& bind(std::span<const std::byte> blob);
  Query& bind(std::int64_t number);
  Query& bind(double number);

  /// Returns true when there is a row.
  bool step();
  /// Runs a statement without rows.
  void run() { step(); }

  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double real(int column) const;
  /// The results are valid until the next step().
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] std::span<const std::byte> blob(int column) const;

 private:
  void check(int code) const;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

/// How long a connection waits for another's lock at first, and after a wait without success.
inline constexpr std::chrono::milliseconds usual_lock_wait{5000}, short_lock_wait{200};

struct LockWait {
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit{};
  std::function<bool()> stop;
  Clock::time_point begun, short_until;
};

enum class OpenMode : std::uint8_t { read_only, read_write, memory };

class Connection {
 public:
  /// Without a database: only is_open() may be called.
  Connection() = default;
  [[nodiscard]] bool is_open() const noexcept { return database_ != nullptr; }
  /// Opens a database without reading it. `path` must be absolute, without links, and exist. Throws SqliteFailure.
  static Connection open(const std::string& path, OpenMode mode);
  /// Returns a database in memory with the content of `from`. Throws SqliteFailure.
  static Connection copy_in_memory(Connection& from);

  [[nodiscard]] Query query(std::string_view sql);
  void execute(std::string_view sql) { query(sql).run(); }
  /// Returns the first column of the statement's first row, or 0 without rows.
  [[nodiscard]] std::int64_t number(std::string_view sql);
  /// Runs several statements without parameters or rows, such as a schema.
  void execute_script(std::string_view sql);
  [[nodiscard]] std::int64_t changes() const noexcept;
  /// Returns a number that is another one once this connection or any other has changed the database.
  [[nodiscard]] std::int64_t version();
  /// Sets how long to wait for another process's lock. After a wait of short_lock_wait or longer without success, waits
  /// in the next `limit` take short_lock_wait at most, since the process that holds the lock may be stopped.
  void wait_at_most(std::chrono::milliseconds limit);
  /// See File::stop_waiting_when.
  void stop_waiting_when(std::function<bool()> stop);
  /// Builds the indexes anew and runs VACUUM. Precondition: no transaction is open.
  void compact();
  /// Returns true when SQLite could open the file read-only only.
  [[nodiscard]] bool is_read_only() const noexcept;
  [[nodiscard]] bool is_in_memory() const noexcept;

  /// Both use SQLite's own descriptor: closing another one would drop the POSIX locks that an SQLite without Kiln may
  /// hold on the file in this process.
  [[nodiscard]] std::int64_t file_size() const;
  void read_header(std::span<std::byte> bytes) const;  // the file's first bytes; zeros past its end

 private:
  struct Close {
    void operator()(sqlite3* database) const noexcept;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
  };
  explicit Connection(sqlite3* database) : database_(database) {}
  [[nodiscard]] std::unique_ptr<sqlite3_stmt, Finalize> prepare(std::string_view sql) const;
  void configure(OpenMode mode);

  std::unique_ptr<LockWait> lock_wait_ = std::make_unique<LockWait>();  // SQLite has its address
  std::unique_ptr<sqlite3, Close> database_;
  std::unordered_map<std::string, std::unique_ptr<sqlite3_stmt, Finalize>, Hash, std::equal_to<>> statements_;
};

/// Rolls back unless committed. A write begins IMMEDIATE, so that it never waits while it holds a read lock. Even a
/// read may write to the file: SQLite first rolls back the transaction of a process that died in it.
class Transaction {
 public:
  enum class Kind : std::uint8_t { read, write };
  Transaction(Connection& connection, Kind kind);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  ForkGuard no_fork_;
  SizeLimitGuard size_limit_;
  Connection& connection_;
  bool open_ = true;
};

}  // namespace kiln::store
