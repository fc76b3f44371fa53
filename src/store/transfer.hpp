// Copying records between files: export as text or as a subset, import, merging. Copies machine code only from files
// that `trust` allows to supply it. Each file is read as it was at one moment, even while others write to it. All throw
// Error(bad_file) for a file that is damaged so that it cannot give all its rows.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "store/file.hpp"
#include "store/trust.hpp"

namespace kiln::store {

/// Which rows to copy.
struct Selection {
  std::string op = {};            // empty: all
  std::string device_class = {};  // empty: all
  bool cubins = true;
  bool candidates = true;
  /// Nothing: all keys.
  std::optional<std::set<std::string>> record_keys = {};
  std::optional<std::set<manifest::Digest>> cubin_keys = {};
  bool must_hold_records = false;  // throw Error(bad_input) instead of writing a file without records
  bool must_lose_nothing = false;  // a file that is replaced: throw as require_nothing_lost (replaced_file.hpp) does
};
struct TransferReport {
  std::int64_t added = 0, replaced = 0, kept = 0, cubins = 0;
  std::int64_t conflicts = 0;         // merge_files: keys for which the files hold different records
  std::int64_t untrusted_cubins = 0;  // not copied, since a copy in the user's own file would be trusted
};

/// Writes JSON lines, one record a line, sorted by key, without cubins. Equal content gives equal bytes, and nothing of
/// the records is lost. Throws Error(bad_input) as `selection` says, and Error(io).
void export_text(File& from, std::ostream& to, const Selection& selection);
/// Merges as merge_into does. Throws Error(bad_input) "NAME:LINE: ..." for an invalid line, and then writes nothing.
TransferReport import_text(std::istream& from, const std::string& name, File& to);
/// Returns whether the path ends in ".jsonl".
bool is_text(const std::filesystem::path& path);
/// Reads a .jsonl file into memory. Throws as import_text does, Error(bad_input) when it is no regular file, and
/// Error(io).
std::unique_ptr<File> read_text(const std::filesystem::path& path);
/// Writes a new sealed .kiln file and renames it to `to`, which may exist only with `overwrite`. Equal content gives
/// equal bytes. Throws Error(bad_input), Error(no_permission) or Error(io).
TransferReport export_file(File& from, const std::filesystem::path& to, const Selection& selection, bool overwrite,
                           const CodeTrust& trust = {});
/// As export_file, from several files: the preferred row of each key (merge_order.hpp), whatever the order of the
/// files. Checks the rows that it reads; memory is bounded.
TransferReport merge_files(std::span<File* const> from, const std::filesystem::path& to, const Selection& selection,
                           bool overwrite, const CodeTrust& trust = {});
/// Copies the rows that `to` lacks, or that are preferred to its own, in one transaction. Commutative and idempotent.
/// Throws as File::write_all does.
TransferReport merge_into(File& from, File& to, const CodeTrust& trust = {});

}  // namespace kiln::store
