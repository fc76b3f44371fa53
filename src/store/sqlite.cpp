#include "store/sqlite.hpp"

#include <fmt/core.h>
#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "store/limits.hpp"
#include "store/plain_files.hpp"

namespace kiln::store {
namespace {

/// SQLite reports a page that the disk failed to read (EIO, ENXIO, ERANGE) as SQLITE_CORRUPT, though the content may be
/// intact. A file's last errno is never reset, so damage found after a disk failure counts as a disk failure too.
bool disk_failed(sqlite3* database) {
  int error = 0;
  if (database == nullptr || sqlite3_file_control(database, "main", SQLITE_FCNTL_LAST_ERRNO, &error) != SQLITE_OK)
    return false;
  return error == EIO || error == ENXIO || error == ERANGE;
}

/// SQLite calls this while another connection holds the lock. SQLite's own handler sleeps longer after each try, so
/// that late writers overtake early ones. This one sleeps a random time with constant bounds.
int try_again(void* context, int tries) {
  constexpr int shortest_us = 500, longest_us = 4000;
  thread_local std::minstd_rand random(std::random_device{}());
  auto& wait = *static_cast<LockWait*>(context);
  const auto now = LockWait::Clock::now();
  if (tries == 0) wait.begun = now;
  const auto limit = wait.begun < wait.short_until ? std::min(wait.limit, short_lock_wait) : wait.limit;
  const auto waited = now - wait.begun;
  if (waited >= limit || (waited >= short_lock_wait && wait.stop && wait.stop())) {
    if (wait.limit >= short_lock_wait) wait.short_until = now + wait.limit;
    return 0;
  }
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::uniform_int_distribution(shortest_us, longest_us)(random)));
  return 1;
}

[[noreturn]] void fail(sqlite3* database, int code) {
  if ((code & 0xff) == SQLITE_CORRUPT && disk_failed(database))
    throw SqliteFailure(SQLITE_IOERR_READ, sqlite3_errstr(SQLITE_IOERR));
  if (database == nullptr) throw SqliteFailure(code, sqlite3_errstr(code));
  const int primary = code & 0xff;
  // SQLite stores an errno for these two codes only.
  const bool has_errno = primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR;
  throw SqliteFailure(code, sqlite3_errmsg(database), has_errno ? sqlite3_system_errno(database) : 0);
}

void check(sqlite3* database, int code) {
  if (code != SQLITE_OK) fail(database, code);
}

int size_of(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) fail(nullptr, SQLITE_TOOBIG);
  return static_cast<int>(bytes);
}

}  // namespace

bool SqliteFailure::damaged() const noexcept {
  const int primary = code_ & 0xff;
  // With intact tables and indices no statement of Kiln causes SQLITE_ERROR or SQLITE_CONSTRAINT.
  return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_FORMAT ||
         primary == SQLITE_CONSTRAINT || primary == SQLITE_ERROR;
}

bool SqliteFailure::too_big() const noexcept { return (code_ & 0xff) == SQLITE_TOOBIG; }

bool SqliteFailure::is_locked() const noexcept { return (code_ & 0xff) == SQLITE_BUSY; }

bool SqliteFailure::is_temporary() const noexcept { return is_locked() || has_too_many_files(); }

bool SqliteFailure::forbidden() const noexcept {
  const int primary = code_ & 0xff;
  return primary == SQLITE_READONLY || primary == SQLITE_PERM || primary == SQLITE_AUTH ||
         (primary == SQLITE_CANTOPEN && !is_disk_full() && !has_too_many_files());
}

bool SqliteFailure::cannot_open() const noexcept { return (code_ & 0xff) == SQLITE_CANTOPEN && !has_too_many_files(); }

bool SqliteFailure::is_disk_full() const noexcept {
  return (code_ & 0xff) == SQLITE_FULL || system_error_ == ENOSPC || system_error_ == EDQUOT;
}

bool SqliteFailure::has_too_many_files() const noexcept { return system_error_ == EMFILE || system_error_ == ENFILE; }

std::string SqliteFailure::in_words() const {
  std::string words = what();
  if (is_disk_full()) return "the disk is full, or this user's share of it; free some space there";
  if (has_too_many_files()) return "too many files are open; close some, or raise the limit (ulimit -n)";
  if (code_ == SQLITE_READONLY_ROLLBACK)
    return "a journal lies beside it, as a process leaves that dies in the middle of a write; the next command that writes to "
           "the file takes that write back: kiln cache compact FILE";
  if (code_ == SQLITE_READONLY_DBMOVED) return "another process replaced or removed it meanwhile; run this again";
  if (code_ == SQLITE_READONLY_DIRECTORY) return "its folder does not let this user make the journal";
  if (system_error_ != 0) words += fmt::format(": {}", std::strerror(system_error_));
  if (system_error_ == EFBIG) return words + "; raise the limit of a file's size (ulimit -f)";
  if (forbidden()) return words + "; let this user read and write the file, its folder and the journal beside it";
  return words;
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Query::check(int code) const { store::check(sqlite3_db_handle(statement_), code); }

Query& Query::bind(std::string_view text) {
  check(sqlite3_bind_text(statement_, ++bound_, text.data() != nullptr ? text.data() : "", size_of(text.size()),
                          SQLITE_STATIC));
  return *this;
}

Query& Query::bind(std::span<const std::byte> blob) {
  const void* data = blob.data() != nullptr ? static_cast<const void*>(blob.data()) : "";
  check(sqlite3_bind_blob(statement_, ++bound_, data, size_of(blob.size()), SQLITE_STATIC));
  return *this;
}

Query& Query::bind(std::int64_t number) {
  check(sqlite3_bind_int64(statement_, ++bound_, number));
  return *this;
}

Query& Query::bind(double number) {
  check(sqlite3_bind_double(statement_, ++bound_, number));
  return *this;
}

bool Query::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  fail(sqlite3_db_handle(statement_), code);
}

std::int64_t Query::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Query::real(int column) const { return sqlite3_column_double(statement_, column); }

std::string_view Query::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::span<const std::byte> Query::blob(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

void Connection::Close::operator()(sqlite3* database) const noexcept {
  const ForkGuard no_fork;
  sqlite3_close_v2(database);
}

void Connection::Finalize::operator()(sqlite3_stmt* statement) const noexcept {
  const ForkGuard no_fork;
  sqlite3_finalize(statement);
}

Connection Connection::open(const std::string& path, OpenMode mode) {
  const ForkGuard no_fork;
  // Private: the program may have this SQLite share its caches (sqlite3_enable_shared_cache). Their locks on tables are
  // those of no other process, and nothing waits for them.
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE;
  switch (mode) {
    case OpenMode::read_only: flags |= SQLITE_OPEN_READONLY; break;
    case OpenMode::read_write: flags |= SQLITE_OPEN_READWRITE; break;
    case OpenMode::memory: flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY; break;
  }
  sqlite3* database = nullptr;
  const int code =
      sqlite3_open_v2(mode == OpenMode::memory ? ":memory:" : path.c_str(), &database, flags, plain_files());
  Connection connection(database);
  check(database, code);
  connection.configure(mode);
  return connection;
}

Connection Connection::copy_in_memory(Connection& from) {
  Connection copy = open({}, OpenMode::memory);
  sqlite3_backup* backup = sqlite3_backup_init(copy.database_.get(), "main", from.database_.get(), "main");
  if (backup == nullptr) fail(copy.database_.get(), sqlite3_errcode(copy.database_.get()));
  sqlite3_backup_step(backup, -1);
  check(copy.database_.get(), sqlite3_backup_finish(backup));
  return copy;
}

void Connection::wait_at_most(std::chrono::milliseconds limit) {
  lock_wait_->limit = limit;
  sqlite3_busy_handler(database_.get(), try_again, lock_wait_.get());
}

void Connection::stop_waiting_when(std::function<bool()> stop) { lock_wait_->stop = std::move(stop); }

void Connection::compact() {
  {
    Transaction transaction(*this, Transaction::Kind::write);
    execute("REINDEX");  // VACUUM copies an index as it is
    transaction.commit();
  }
  sqlite3_limit(database_.get(), SQLITE_LIMIT_ATTACHED, 1);  // VACUUM attaches its temporary file
  const ForkGuard no_fork;
  const SizeLimitGuard size_limit;
  const int code = sqlite3_exec(database_.get(), "VACUUM", nullptr, nullptr, nullptr);
  sqlite3_limit(database_.get(), SQLITE_LIMIT_ATTACHED, 0);
  check(database_.get(), code);
}

// Far above what Kiln's own statements need, far below what a hostile schema could use.
constexpr std::pair<int, int> limits[] = {
    {SQLITE_LIMIT_LENGTH, max_row_bytes}, {SQLITE_LIMIT_SQL_LENGTH, 16384}, {SQLITE_LIMIT_COLUMN, 64},
    {SQLITE_LIMIT_EXPR_DEPTH, 64},        {SQLITE_LIMIT_VDBE_OP, 16384},    {SQLITE_LIMIT_COMPOUND_SELECT, 8},
    {SQLITE_LIMIT_FUNCTION_ARG, 8},       {SQLITE_LIMIT_ATTACHED, 0},       {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
    {SQLITE_LIMIT_VARIABLE_NUMBER, 64},   {SQLITE_LIMIT_TRIGGER_DEPTH, 4},
};

// Files may be hostile: disables triggers, views and schema functions, and limits the size of rows.
void Connection::configure(OpenMode mode) {
  sqlite3* database = database_.get();
  sqlite3_extended_result_codes(database, 1);
  wait_at_most(usual_lock_wait);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_FKEY, 1, nullptr);
  for (const auto& [limit, value] : limits) sqlite3_limit(database, limit, value);
  // Pragmas that do not read the file, unlike cache_size and synchronous, since its header is not checked yet.
  execute_script("PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY");
  if (mode == OpenMode::read_only) execute_script("PRAGMA query_only = ON");
}

std::unique_ptr<sqlite3_stmt, Connection::Finalize> Connection::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  check(database_.get(), sqlite3_prepare_v3(database_.get(), sql.data(), size_of(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                            &statement, nullptr));
  return std::unique_ptr<sqlite3_stmt, Finalize>(statement);
}

Query Connection::query(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) found = statements_.emplace(std::string(sql), prepare(sql)).first;
  return Query(found->second.get());
}

std::int64_t Connection::number(std::string_view sql) {
  Query only = query(sql);
  return only.step() ? only.integer(0) : 0;
}

void Connection::execute_script(std::string_view sql) {
  const std::string text(sql);
  const ForkGuard no_fork;
  const SizeLimitGuard size_limit;
  check(database_.get(), sqlite3_exec(database_.get(), text.c_str(), nullptr, nullptr, nullptr));
}

std::int64_t Connection::changes() const noexcept { return sqlite3_changes64(database_.get()); }

std::int64_t Connection::version() {
  // The former grows by changes of other connections, the latter by this one's.
  return number("PRAGMA data_version") + sqlite3_total_changes64(database_.get());
}

bool Connection::is_read_only() const noexcept { return sqlite3_db_readonly(database_.get(), "main") == 1; }

bool Connection::is_in_memory() const noexcept {
  const char* const file = sqlite3_db_filename(database_.get(), "main");
  return file == nullptr || *file == '\0';
}

std::int64_t Connection::file_size() const {
  sqlite3_file* file = nullptr;
  check(database_.get(),
        sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_FILE_POINTER, static_cast<void*>(&file)));
  sqlite3_int64 size = 0;
  check(nullptr, file->pMethods->xFileSize(file, &size));
  return size;
}

void Connection::read_header(std::span<std::byte> bytes) const {
  sqlite3_file* file = nullptr;
  check(database_.get(),
        sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_FILE_POINTER, static_cast<void*>(&file)));
  std::ranges::fill(bytes, std::byte{0});
  const int code = file->pMethods->xRead(file, bytes.data(), size_of(bytes.size()), 0);
  if (code != SQLITE_IOERR_SHORT_READ) check(nullptr, code);
}

Transaction::Transaction(Connection& connection, Kind kind) : connection_(connection) {
  connection_.execute(kind == Kind::write ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    connection_.execute("ROLLBACK");
  } catch (const SqliteFailure&) {
    // SQLite has rolled back already, as after a full disk.
  }
}

void Transaction::commit() {
  connection_.execute("COMMIT");
  open_ = false;
}

}  // namespace kiln::store
