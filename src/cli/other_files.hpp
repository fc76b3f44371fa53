// Files that a command was not given, and that may have the records which it misses.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/target.hpp"
#include "manifest/op_bucket.hpp"

namespace kiln::cli {

struct OtherFile {
  std::filesystem::path path;
  std::size_t records = 0;  // of the buckets that were looked for
};

/// Looks for records of `buckets` in the overlay that an option replaced and in .kiln and .jsonl files that no option
/// names. Searches the folders of the bases, the current folder, its folder cache, and share/kiln of the installed
/// command. Returns the file with the most records first, and none without any. Ignores files that cannot be read.
std::vector<OtherFile> files_with_records(const Globals& globals, const Target& target,
                                          std::span<const manifest::OpBucket> buckets);

}  // namespace kiln::cli
