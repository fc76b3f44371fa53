// Moving records between files: text that can be reviewed, subsets for deployments, unions.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "store/file.hpp"

namespace kiln::store {

struct Selection {
  std::string op = {};            // empty: all; cubins, which do not say whose they are, are not selected by it
  std::string device_class = {};  // empty: all
  bool cubins = true;
  bool candidates = true;
};
struct TransferReport {
  std::int64_t added = 0, replaced = 0, kept = 0, cubins = 0;
  std::int64_t untrusted_cubins = 0;  // left behind: a copy in the user's own file would pass for the user's own code
};

/// JSON lines, sorted by key, one record a line, no cubins: the same content gives the same bytes. Lossless for what it
/// holds.
void export_text(File& from, std::ostream& to, const Selection& selection);
/// Merges as merge_into does. Throws Error(bad_input) "NAME:LINE: ..." for a line that does not hold; nothing is
/// written then.
TransferReport import_text(std::istream& from, const std::string& name, File& to);
/// Writes a new .kiln file beside `to`, seals it with a manifest and renames it into place; an existing file needs
/// `overwrite`. The same content gives the same bytes.
TransferReport export_file(File& from, const std::filesystem::path& to, const Selection& selection, bool overwrite);
/// On conflict the record with more samples wins, then the lower relative interval, then the smaller digest, then the
/// one with more candidates: commutative and idempotent. Of two cubins of one key the one with the smaller digest wins.
TransferReport merge_into(File& from, File& to);

}  // namespace kiln::store
