// Moving records between files: text that can be reviewed, subsets for deployments, unions.
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

struct Selection {
  std::string op = {};            // empty: all
  std::string device_class = {};  // empty: all
  bool cubins = true;
  bool candidates = true;
  /// What a workload needs, say; nothing: all.
  std::optional<std::set<std::string>> record_keys = {};
  std::optional<std::set<manifest::Digest>> cubin_keys = {};
  bool must_hold_records = false;  // throw Error(bad_input) rather than write a file without one
};
struct TransferReport {
  std::int64_t added = 0, replaced = 0, kept = 0, cubins = 0;
  std::int64_t conflicts = 0;         // of merge_files: keys for which the files hold different records
  std::int64_t untrusted_cubins = 0;  // left behind: a copy in the user's own file would pass for the user's own code
};

/// Machine code goes along only from files that `trust` lets supply it. What is read is of one moment of each file, whoever writes to it
/// meanwhile.

/// JSON lines, sorted by key, one record a line, no cubins: the same content gives the same bytes. Lossless for what it
/// holds.
void export_text(File& from, std::ostream& to, const Selection& selection);
/// Merges as merge_into does. Throws Error(bad_input) "NAME:LINE: ..." for a line that does not hold; nothing is
/// written then.
TransferReport import_text(std::istream& from, const std::string& name, File& to);
/// Whether the path is that of text, by its name.
bool is_text(const std::filesystem::path& path);
/// The records of a .jsonl file, in memory. Throws as import_text does, Error(bad_input) for what is no regular file, and Error(io).
std::unique_ptr<File> read_text(const std::filesystem::path& path);
/// Writes a new .kiln file beside `to`, seals it with a manifest and renames it into place; an existing file needs
/// `overwrite`. The same content gives the same bytes.
TransferReport export_file(File& from, const std::filesystem::path& to, const Selection& selection, bool overwrite,
                           const CodeTrust& trust = {});
/// The same from several files at once: of each key the row that merge_order.hpp finds better, whatever their order. Rows are verified before
/// they count; memory stays bounded.
TransferReport merge_files(std::span<File* const> from, const std::filesystem::path& to, const Selection& selection,
                           bool overwrite, const CodeTrust& trust = {});
/// Takes over, in one transaction, what is better than, or missing from, `to`: commutative and idempotent.
TransferReport merge_into(File& from, File& to, const CodeTrust& trust = {});

}  // namespace kiln::store
