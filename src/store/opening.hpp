// Creating .kiln files, and checking existing ones when they are opened. Paths come from literal_path().
#pragma once

#include <chrono>
#include <filesystem>

#include "kiln/error.hpp"
#include "store/file_types.hpp"
#include "store/format.hpp"
#include "store/output_file.hpp"
#include "store/seal.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// A .kiln file with damaged content. A damaged overlay is renamed and replaced by a new one; a damaged base is
/// skipped.
class DamagedFile : public Error {
 public:
  explicit DamagedFile(const std::string& message) : Error(ErrorKind::bad_file, message) {}
};

/// The file may open a moment later: another process holds its lock for longer than the wait for it, or this process
/// has too many files open.
class BusyFile : public Error {
 public:
  explicit BusyFile(const std::string& message) : Error(ErrorKind::io, message) {}
};

/// Opens an existing file and checks its header, size and tables. If `seal` is given, also checks the seal and returns
/// it there. Migrates a file of an earlier version of `format`: in place with read_write, else in a copy in memory.
/// Throws as File::open does, DamagedFile for a damaged .kiln file, and BusyFile after `wait` or for want of
/// descriptors.
Connection open_existing(const std::filesystem::path& path, Access access, Seal* seal = nullptr,
                         const Format& format = present_format(), std::chrono::milliseconds wait = usual_lock_wait);
Connection open_in_memory();

/// Returns the definitions of the tables and indices in a fixed order.
std::string tables_of(Connection& connection);
/// Returns whether tables_of() has the digest of a file of the present version.
bool has_known_tables(std::string_view tables);

/// Creates an empty file under a temporary name and renames it to `path`, unless `path` exists. Throws
/// Error(no_permission) or Error(io).
void create_if_missing(const std::filesystem::path& path);
/// Throws Error(no_permission) or Error(io) when create_if_missing would fail for its folder: the nearest existing one
/// is no folder, is not writable, or does not allow such long names.
void check_can_be_made(const std::filesystem::path& path);
/// Creates an empty .kiln file at output.path(). Throws Error(no_permission) or Error(io), naming the target.
Connection create_in(const OutputFile& output, unsigned permissions);
/// Removes the journal of a file that is missing or about to be replaced: SQLite would play it back into the new file.
void remove_journal_of(const std::filesystem::path& path) noexcept;

/// Renames a damaged file and its journal to the first free "NAME.damaged-N" and returns that name. Returns an empty
/// path when the file is intact or gone, because another process was faster. Throws Error(io).
std::filesystem::path set_aside_if_damaged(const std::filesystem::path& path);

/// Returns "'PATH' cannot be DOING: why", of kind bad_file, io or no_permission.
Error to_error(const std::filesystem::path& path, std::string_view doing, const SqliteFailure& failure);

}  // namespace kiln::store
