// Making .kiln files, and judging those that are found before a byte of them is believed.
#pragma once

#include <filesystem>

#include "kiln/error.hpp"
#include "store/file.hpp"
#include "store/migration.hpp"
#include "store/output_file.hpp"
#include "store/seal.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// A .kiln file whose content does not hold together. An overlay is set aside and begun again; a base is left out.
class DamagedFile : public Error {
 public:
  explicit DamagedFile(const std::string& message) : Error(ErrorKind::bad_file, message) {}
};

/// All below take a path from literal_path().

/// Opens a file that exists, after a check of its header, its size and its tables, and with `seal` also of its seal,
/// which is then known. A file of an earlier version of `format` is brought to the present one when it may be written, else a copy of it
/// in memory. Throws as File::open does, and DamagedFile where the file is Kiln's own but damaged.
Connection open_existing(const std::filesystem::path& path, Access access, Seal* seal = nullptr,
                         const Format& format = present_format());
Connection open_in_memory();

/// What the file says of its tables and indices, in a fixed order.
std::string tables_of(Connection& connection);
/// Whether those are, by their digest, what a file of the present version has.
bool has_known_tables(std::string_view tables);

/// Makes an empty file under a temporary name beside `path` and renames it there, unless something has that name
/// already.
void create_if_missing(const std::filesystem::path& path);
/// Throws Error(no_permission) or Error(io) where create_if_missing is sure to fail: what lies nearest to the path is no folder that this
/// user may write.
void check_can_be_made(const std::filesystem::path& path);
/// Makes an empty .kiln file at output.path(), with these permissions. Throws Error(no_permission) or Error(io), naming the target.
Connection create_in(const OutputFile& output, unsigned permissions);
/// Of a file that was deleted or is about to be replaced: SQLite would play it back into the new one.
void remove_journal_of(const std::filesystem::path& path) noexcept;

/// Renames a file that open_existing finds damaged, and its journal, to the first free "NAME.damaged-N"; returns that
/// name, or an empty path when the file turned out to be sound: another process was faster.
std::filesystem::path set_aside_if_damaged(const std::filesystem::path& path);

/// "'PATH' cannot be DOING: why", with the kind that the failure calls for.
Error to_error(const std::filesystem::path& path, std::string_view doing, const SqliteFailure& failure);

}  // namespace kiln::store
