// Moving records between files: text that can be reviewed, subsets for deployments, unions.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>

#include "store/file.hpp"

namespace kiln::store {

struct Selection {
  std::string op;             // empty: all
  std::string device_class;   // empty: all
  bool cubins = true;
  bool candidates = true;
};
struct TransferReport {
  std::int64_t added = 0, replaced = 0, kept = 0, cubins = 0;
};

/// JSON lines, sorted by key, one record a line, no cubins: the same content gives the same bytes.
void export_text(File& from, std::ostream& to, const Selection& selection);
/// Throws Error(bad_input) "NAME:LINE: ..." for a line that does not hold; nothing is written then.
TransferReport import_text(std::istream& from, const std::string& name, File& to);
/// Writes a new .kiln file beside `to` and renames it into place; an existing file needs `overwrite`.
TransferReport export_file(File& from, const std::filesystem::path& to, const Selection& selection, bool overwrite);
/// On conflict the record with more samples wins, then the lower relative interval, then the smaller digest: commutative and idempotent.
TransferReport merge_into(File& from, File& to);

}  // namespace kiln::store
