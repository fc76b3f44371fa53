#include "store/replaced_file.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "store/custody.hpp"
#include "store/opening.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<File> open_sealed(const fs::path& target) {
  Seal seal;
  open_existing(target, Access::read_only, &seal);
  if (seal.manifest.empty())
    refuse_to_replace(target, "is an overlay, or was changed after a command had written and sealed it");
  return File::open(target, Access::read_only);
}

std::unique_ptr<File> open_replaced(const fs::path& target, RecordFormat format) {
  const bool is_text = format == RecordFormat::text;
  try {
    return is_text ? read_text(target) : open_sealed(target);
  } catch (const DamagedFile& error) {
    refuse_to_replace(target, fmt::format("cannot be read ({})", error.what()));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_file && !is_text) throw;
    refuse_to_replace(
        target,
        fmt::format("is no {} ({})", is_text ? "text of records" : "file of records of this format", error.what()));
  }
}

}  // namespace

void refuse_to_replace(const fs::path& target, std::string_view is) {
  throw Error(ErrorKind::bad_input,
              fmt::format("'{}' exists and {}; name another file, or replace this one by --replace (in a program, "
                          "TuneChoice::replace)",
                          target.string(), is));
}

std::set<std::string> replaced_keys(const fs::path& path, RecordFormat format) {
  const fs::path target = literal_path(path);
  check_target(target, Existing::replace);
  std::error_code is_missing;
  if (fs::file_size(target, is_missing) == 0 || is_missing) return {};
  std::set<std::string> keys;
  for (Record& record : open_replaced(target, format)->records()) keys.insert(std::move(record.key));
  return keys;
}

void require_nothing_lost(const fs::path& target, RecordFormat format, const std::set<std::string>& keys) {
  const std::set<std::string> before = replaced_keys(target, format);
  const auto is_lost = [&](const std::string& key) { return !keys.contains(key); };
  const auto first = std::find_if(before.begin(), before.end(), is_lost);
  if (first == before.end()) return;
  refuse_to_replace(target, fmt::format("{} of its {} records would be lost, the first of them {}",
                                        std::count_if(first, before.end(), is_lost), before.size(), *first));
}

}  // namespace kiln::store
