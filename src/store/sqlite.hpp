// SQLite as Kiln uses it: bound parameters only, statements prepared once, failures as exceptions.
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

#include "store/fork_guard.hpp"
#include "store/size_limit.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace kiln::store {

/// An SQLite call that failed. A File turns it into a kiln::Error, or into a miss.
class SqliteFailure : public std::runtime_error {
 public:
  /// `system_error` is the errno of the call that failed, or 0.
  SqliteFailure(int code, const std::string& message, int system_error = 0)
      : std::runtime_error(message), code_(code), system_error_(system_error) {}
  /// The file's content is at fault, not the machine: reading it again will fail again.
  [[nodiscard]] bool damaged() const noexcept;
  /// The row is larger than any that Kiln writes.
  [[nodiscard]] bool too_big() const noexcept;
  /// Another connection holds the lock.
  [[nodiscard]] bool is_locked() const noexcept;
  /// The file system lets this process read but not write.
  [[nodiscard]] bool forbidden() const noexcept;
  /// What was found and what to do, for a message.
  [[nodiscard]] std::string in_words() const;

 private:
  [[nodiscard]] bool is_disk_full() const noexcept;
  [[nodiscard]] bool has_too_many_files() const noexcept;
  int code_, system_error_;
};

/// One use of a prepared statement: binds in order, steps, and is reset at the end so that no lock outlives it.
class Query {
 public:
  explicit Query(sqlite3_stmt* statement) noexcept : statement_(statement) {}
  Query(Query&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)), bound_(other.bound_) {}
  Query& operator=(Query&&) = delete;
  ~Query();

  /// Text and blobs are not copied: they must live until the Query ends.
  Query& bind(std::string_view text);
  Query& bind(std::span<const std::byte> blob);
  Query& bind(std::int64_t number);
  Query& bind(double number);

  /// True when there is a row.
  bool step();
  /// For statements without rows.
  void run() { step(); }

  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] double real(int column) const;
  /// Both are valid until the next step.
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] std::span<const std::byte> blob(int column) const;

 private:
  void check(int code) const;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

/// How long one connection waits for another's lock.
struct Patience {
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds limit{};
  std::function<bool()> stop;
  Clock::time_point begun, short_until;
};

enum class OpenMode : std::uint8_t { read_only, read_write, memory };

class Connection {
 public:
  /// To nothing: is_open() alone may be called.
  Connection() = default;
  [[nodiscard]] bool is_open() const noexcept { return database_ != nullptr; }
  /// Opens without reading: see header(). `path` is taken literally and must be absolute; it is not created.
  static Connection open(const std::string& path, OpenMode mode);
  /// A database in memory with the content of this one.
  static Connection copy_in_memory(Connection& from);

  [[nodiscard]] Query query(std::string_view sql);
  void execute(std::string_view sql) { query(sql).run(); }
  /// Statements without parameters or rows, such as a schema.
  void execute_script(std::string_view sql);
  [[nodiscard]] std::int64_t changes() const noexcept;
  /// For another process's lock. Once that was waited for in vain, the waits of as long a time after it are short: what holds it may be
  /// stopped.
  void wait_at_most(int milliseconds);
  /// Asked while it waits, see File::stop_waiting_when.
  void stop_waiting_when(std::function<bool()> stop);
  /// VACUUM: gives free pages back to the file system and lays the rest out in order. Outside any transaction.
  void compact();
  /// True when the file system let SQLite open the file for reading only.
  [[nodiscard]] bool is_read_only() const noexcept;

  /// The first bytes of the file and its size, read through SQLite's own descriptor: opening the file once more and
  /// closing it would drop the POSIX locks of every other connection of this process.
  [[nodiscard]] std::int64_t file_size() const;
  void read_header(std::span<std::byte> bytes) const;

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

  std::unique_ptr<Patience> patience_ = std::make_unique<Patience>();  // SQLite has its address
  std::unique_ptr<sqlite3, Close> database_;
  std::unordered_map<std::string, std::unique_ptr<sqlite3_stmt, Finalize>, Hash, std::equal_to<>> statements_;
};

/// Rolls back unless committed. A write begins IMMEDIATE, so that it never waits while it holds a read lock. Even a read
/// may write: what a process left behind that died inside a transaction is rolled back first.
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
