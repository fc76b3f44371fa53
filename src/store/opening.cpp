#include "store/opening.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "store/custody.hpp"
#include "store/file_system.hpp"
#include "store/format.hpp"
#include "store/holder.hpp"
#include "store/output_file.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

// The fields of SQLite's header that are checked (https://www.sqlite.org/fileformat.html, 1.3), integers big-endian:
//
//    0  16  "SQLite format 3\0"            28  4  size in pages
//   16   2  page size, 1 for 65536         60  4  user_version
//   18   2  write and read version,        68  4  application_id
//           1 = rollback journal, 2 = WAL  44  4  schema format, at most 4
//                                          56  4  text encoding, 1 = UTF-8
struct Header {
  static constexpr std::size_t bytes = 100;
  static constexpr std::string_view magic{"SQLite format 3\0", 16};
  std::array<std::byte, bytes> raw{};

  [[nodiscard]] std::uint32_t integer(std::size_t at, std::size_t length) const {
    std::uint32_t value = 0;
    for (std::size_t each = at; each < at + length; ++each)
      value = value << 8U | std::to_integer<std::uint32_t>(raw[each]);
    return value;
  }
  /// A file of `size` bytes that was cut off has the magic's first `size` bytes.
  [[nodiscard]] bool has_magic(std::int64_t size) const {
    return std::memcmp(raw.data(), magic.data(), std::min(magic.size(), static_cast<std::size_t>(size))) == 0;
  }
  [[nodiscard]] std::int64_t page_size() const { return integer(16, 2) == 1 ? 65536 : integer(16, 2); }
};

/// The digest of tables_of() for schema_sql().
constexpr std::string_view known_tables = "324812d71367f4d8d1fe78bd67b74f32440c524fa1f596ff3d73f6278d98ebb6";

constexpr std::int64_t smallest_database = 512;  // one page of the smallest size

[[noreturn]] void refuse_file(const fs::path& path, const std::string& found) {
  throw Error(ErrorKind::bad_file, fmt::format("'{}' is refused: {}", path.string(), found));
}

[[noreturn]] void damaged(const fs::path& path, const std::string& found) {
  throw DamagedFile(fmt::format("'{}' is damaged: {}", path.string(), found));
}

bool is_taken(const fs::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

fs::path with_suffix(const fs::path& path, std::string_view suffix) {
  fs::path longer = path;
  longer += suffix;
  return longer;
}

void check_version(const fs::path& path, std::uint32_t version, const Format& format) {
  if (version > format.version)
    refuse_file(path, fmt::format("its format is version {} and this Kiln reads up to {}; use a newer Kiln", version,
                                  format.version));
  if (version == 0) damaged(path, "its format version is 0");
  if (version < format.oldest())
    refuse_file(
        path,
        fmt::format("its format is version {} and this Kiln reads none before {}; move it away, and tune again or "
                    "import a .jsonl of this version",
                    version, format.oldest()));
}

void check_header(const fs::path& path, const Connection& connection, const Format& format) {
  const std::int64_t size = connection.file_size();
  if (size == 0) damaged(path, "it is empty");
  Header header;
  connection.read_header(header.raw);
  const bool ours = header.integer(68, 4) == application_id;
  if (size < smallest_database && header.has_magic(size))
    damaged(path, fmt::format("it was cut off after {} bytes", size));
  if (!header.has_magic(size) && !ours) refuse_file(path, "it is not a .kiln file");
  if (!header.has_magic(size)) damaged(path, "its first bytes are not those of a .kiln file");
  if (!ours)
    refuse_file(path, fmt::format("it is an SQLite database of another program (application_id {:#010x})",
                                  header.integer(68, 4)));
  if (header.integer(18, 1) == 2 || header.integer(19, 1) == 2)
    refuse_file(path,
                "it is in WAL mode, where rows can stand in a side file that was left behind; run: "
                "sqlite3 FILE 'PRAGMA journal_mode = DELETE'");
  check_version(path, header.integer(60, 4), format);
  constexpr std::uint32_t utf8 = 1;
  constexpr std::uint32_t newest_schema_format = 4;
  if (header.integer(44, 4) > newest_schema_format) damaged(path, "its tables are in a form that SQLite does not know");
  if (header.integer(56, 4) != utf8) damaged(path, "its text is not stored as UTF-8");
}

/// SQLite reads rows from a write-ahead log beside the file, whatever the header states.
void check_side_file(const fs::path& path) {
  if (const fs::path log = with_suffix(path, "-wal"); is_taken(log))
    refuse_file(
        path,
        fmt::format("'{}' lies beside it, whose rows SQLite would put over its own; Kiln makes no such file: remove it",
                    log.string()));
}

// Needs a lock, since a writer changes the size and the header one after the other.
void check_size(const fs::path& path, const Connection& connection) {
  Header header;
  connection.read_header(header.raw);
  const std::int64_t stated = header.page_size() * header.integer(28, 4);
  if (const auto size = connection.file_size(); size != stated)
    damaged(path, fmt::format("it has {} bytes and its header states {}; was it copied in part?", size, stated));
}

/// Returns the version that SQLite read when the transaction began. It can differ from the one that check_header() saw:
/// a writer that takes no lock may overwrite the file at any time, and SQLite first plays back a dead writer's journal.
std::uint32_t checked_version(const fs::path& path, Connection& connection, const Format& format) {
  const std::uint32_t version = version_of(connection);
  check_version(path, version, format);
  check_header(path, connection, format);
  return version;
}

/// Creating reference tables takes a millisecond, so it is done only where the digest differs: an earlier version, or
/// an SQLite that stores the statements in another form.
void check_tables(const fs::path& path, Connection& connection, const Format& format, std::uint32_t version) {
  const std::string tables = tables_of(connection);
  if (version == schema_version && has_known_tables(tables)) return;
  Connection reference = Connection::open({}, OpenMode::memory);
  reference.execute_script(format.schema_of(version));
  if (tables != tables_of(reference))
    damaged(path, fmt::format("its tables are not those of a .kiln file of version {}", version));
}

/// Migrates a writable file in place, and a read-only one in a copy in memory at each opening.
Connection migrated(Connection connection, Access access, const Format& format, std::uint32_t version) {
  if (version == format.version) return connection;
  if (access == Access::read_only) connection = Connection::copy_in_memory(connection);
  Transaction transaction(connection, Transaction::Kind::write);
  migrate(connection, format);  // does nothing when another process was faster
  transaction.commit();
  return connection;
}

Seal check_seal(const fs::path& path, Connection& connection, bool will_migrate) {
  Seal seal = read_seal(connection);
  if (seal.flaw.empty()) seal.flaw = content_flaw(connection, SealedTables::answers, seal);
  if (!seal.flaw.empty()) damaged(path, seal.flaw);
  // A migration changes the digests, so the signature does not cover the rows as they will be read.
  if (will_migrate) return {};
  return seal;
}

void check_access(const fs::path& path, Access access) {
  const int wanted = access == Access::read_only ? R_OK : R_OK | W_OK;
  if (faccessat(AT_FDCWD, path.c_str(), wanted, AT_EACCESS) != 0) {
    const ErrorKind kind =
        errno == EACCES || errno == EROFS || errno == EPERM ? ErrorKind::no_permission : ErrorKind::io;
    throw Error(kind, fmt::format("'{}' cannot be {}: {}", path.string(),
                                  access == Access::read_only ? "read" : "written", std::strerror(errno)));
  }
  const auto folder = path.parent_path();
  if (access == Access::read_write && faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0)
    throw Error(ErrorKind::no_permission,
                fmt::format("'{}' cannot be written: its folder does not let this user make the journal: {}",
                            path.string(), std::strerror(errno)));
}

void write_schema(Connection& connection) {
  Transaction transaction(connection, Transaction::Kind::write);
  connection.execute_script(schema_sql());
  const std::string name = "created_by";
  const std::string value = "kiln " KILN_VERSION;
  const auto digest = manifest::Hasher()
                          .field(std::string_view("meta"))
                          .field(std::string_view(name))
                          .field(std::string_view(value))
                          .finish();
  connection.query("INSERT INTO meta (name, value, digest) VALUES (?, ?, ?)")
      .bind(std::string_view(name))
      .bind(std::string_view(value))
      .bind(std::span<const std::byte>(digest))
      .run();
  transaction.commit();
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    throw Error(ErrorKind::io,
                fmt::format("'{}' cannot be renamed to '{}': {}", from.string(), to.string(), std::strerror(errno)));
}

/// Returns whether the folder's file system allows names as long as those to be created below it, "FILE-journal"
/// included.
bool takes_names(const fs::path& folder, const fs::path& file) {
  const long longest = pathconf(folder.c_str(), _PC_NAME_MAX);
  const auto missing = with_suffix(file, "-journal").lexically_relative(folder);
  return longest < 0 || std::ranges::all_of(missing, [&](const fs::path& name) {
           return name.native().size() <= static_cast<std::size_t>(longest);
         });
}

}  // namespace

Error to_error(const fs::path& path, std::string_view doing, const SqliteFailure& failure) {
  if (failure.damaged())
    return Error(ErrorKind::bad_file,
                 fmt::format("'{}' cannot be {}: it is damaged ({})", path.string(), doing, failure.what()));
  if (failure.is_locked())
    return Error(ErrorKind::io, fmt::format("'{}' cannot be {}: {} by {}; try again when that is done", path.string(),
                                            doing, failure.what(), locker_in_words(path)));
  if (failure.cannot_open())
    if (const auto full = full_in_words(path.parent_path()); !full.empty())
      return Error(ErrorKind::io, fmt::format("'{}' cannot be {}: {}", path.string(), doing, full));
  return Error(failure.forbidden() ? ErrorKind::no_permission : ErrorKind::io,
               fmt::format("'{}' cannot be {}: {}", path.string(), doing, failure.in_words()));
}

std::string tables_of(Connection& connection) {
  std::string tables;
  Query query = connection.query("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name");
  while (query.step())
    for (int column = 0; column < 4; ++column) tables.append(query.text(column)).push_back('\0');
  return tables;
}

bool has_known_tables(std::string_view tables) {
  return manifest::to_hex(manifest::Hasher().field(tables).finish()) == known_tables;
}

Connection open_existing(const fs::path& path, Access access, Seal* seal, const Format& format,
                         std::chrono::milliseconds wait) {
  const ForkGuard no_fork;
  if (struct stat status{}; lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    refuse_file(path, "it is not a regular file");
  check_access(path, access);
  try {
    const bool writing = access == Access::read_write;
    Connection connection = Connection::open(path.native(), writing ? OpenMode::read_write : OpenMode::read_only);
    connection.wait_at_most(wait);
    check_header(path, connection, format);
    check_side_file(path);
    if (writing && connection.is_read_only())
      throw Error(ErrorKind::no_permission,
                  fmt::format("'{}' cannot be written: it opens for reading only", path.string()));
    // The removal of the journal is the commit; without EXTRA a loss of power could undo it.
    connection.execute_script("PRAGMA cache_size = -8192; PRAGMA synchronous = EXTRA");  // KiB
    Transaction transaction(connection, Transaction::Kind::read);
    const std::uint32_t version = checked_version(path, connection, format);
    check_tables(path, connection, format, version);
    check_size(path, connection);
    if (version == schema_version) read_each_table(connection);
    if (seal != nullptr) *seal = check_seal(path, connection, version != format.version);
    transaction.commit();
    connection.wait_at_most(usual_lock_wait);
    return migrated(std::move(connection), access, format, version);
  } catch (const SqliteFailure& failure) {
    if (failure.damaged()) damaged(path, failure.what());
    const Error error = to_error(path, "opened", failure);
    if (failure.is_temporary()) throw BusyFile(error.what());
    throw error;
  }
}

Connection open_in_memory() {
  Connection connection = Connection::open({}, OpenMode::memory);
  write_schema(connection);
  return connection;
}

Connection create_in(const OutputFile& output, unsigned permissions) {
  const std::string path = output.path().string();
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, permissions);
  if (descriptor < 0) {
    const bool refused = errno == EACCES || errno == EPERM || errno == EROFS;
    throw Error(refused ? ErrorKind::no_permission : ErrorKind::io,
                fmt::format("'{}' cannot be made: {}", output.target().string(),
                            error_in_words(errno, output.target().parent_path())));
  }
  close(descriptor);
  try {
    Connection connection = Connection::open(path, OpenMode::read_write);
    connection.execute_script("PRAGMA page_size = 4096; PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA");
    write_schema(connection);
    return connection;
  } catch (const SqliteFailure& failure) {
    throw to_error(output.target(), "made", failure);
  }
}

void remove_journal_of(const fs::path& path) noexcept { unlink(with_suffix(path, "-journal").c_str()); }

void check_can_be_made(const fs::path& path) {
  fs::path nearest = path.parent_path();
  while (!is_taken(nearest) && nearest.has_relative_path()) nearest = nearest.parent_path();
  struct stat status {};
  if (stat(nearest.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    errno = ENOTDIR;
  else if (!takes_names(nearest, path))
    errno = ENAMETOOLONG;
  else if (faccessat(AT_FDCWD, nearest.c_str(), W_OK | X_OK, AT_EACCESS) == 0)
    return;
  const bool refused = errno == EACCES || errno == EROFS || errno == EPERM;
  throw Error(refused ? ErrorKind::no_permission : ErrorKind::io,
              fmt::format("'{}' cannot be made in '{}': {}", path.string(), nearest.string(), std::strerror(errno)));
}

void create_if_missing(const fs::path& path) {
  if (is_taken(path)) return;
  check_can_be_made(path);
  create_private_folders(path.parent_path());
  const FolderLock lock(path.parent_path());
  if (is_taken(path)) return;
  OutputFile output(path);
  create_in(output, S_IRUSR | S_IWUSR);
  remove_journal_of(path);
  output.move_into_place(Existing::keep);
}

namespace {

/// Throws DamagedFile for a file that does not open, or that is damaged where opening it does not look.
void refuse_damaged_content(const fs::path& path) {
  Connection connection = open_existing(path, Access::read_write);
  try {
    if (const auto damage = damage_of(connection); !damage.empty()) damaged(path, damage);
  } catch (const SqliteFailure& failure) {
    throw to_error(path, "read", failure);
  }
}

}  // namespace

fs::path set_aside_if_damaged(const fs::path& path) {
  const FolderLock lock(path.parent_path());
  try {
    if (!is_taken(path)) return {};
    refuse_damaged_content(path);
    return {};
  } catch (const DamagedFile&) {
    int number = 1;
    while (is_taken(with_suffix(path, fmt::format(".damaged-{}", number)))) ++number;
    fs::path aside = with_suffix(path, fmt::format(".damaged-{}", number));
    if (is_taken(with_suffix(path, "-journal")))
      rename_or_throw(with_suffix(path, "-journal"), with_suffix(aside, "-journal"));
    rename_or_throw(path, aside);
    lock.sync();
    return aside;
  }
}

}  // namespace kiln::store
