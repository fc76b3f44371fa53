#include "cli/other_files.hpp"

#include <algorithm>

#include "cli/installed.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_of(const Globals& globals) {
  std::vector<fs::path> folders;
  for (const fs::path base : globals.bases) folders.push_back(base.has_parent_path() ? base.parent_path() : ".");
  folders.insert(folders.end(), {".", "cache"});
  if (const fs::path installed = installed_data(); !installed.empty()) folders.push_back(installed);
  return folders;
}

/// Returns each file once.
std::vector<fs::path> candidates(const Globals& globals) {
  std::vector<fs::path> found, known(globals.bases.begin(), globals.bases.end());
  const auto overlay = layer_settings(globals).overlay;
  if (overlay && !overlay->empty()) known.push_back(*overlay);
  const auto add = [&](const fs::path& path) {
    std::error_code failure;
    const auto is_same = [&](const fs::path& other) { return fs::equivalent(path, other, failure); };
    if (!fs::is_regular_file(path, failure) || std::ranges::any_of(known, is_same)) return;
    known.push_back(path);
    found.push_back(path);
  };
  if (const auto usual = globals.overlay ? store::default_overlay() : std::nullopt) add(*usual);
  for (const fs::path& folder : folders_of(globals)) {
    std::error_code failure;
    std::vector<fs::path> here;
    for (const auto& entry : fs::directory_iterator(folder, failure))
      if (entry.path().extension() == ".kiln" || entry.path().extension() == ".jsonl")
        here.push_back(folder == "." ? entry.path().filename() : entry.path());
    std::ranges::sort(here);  // the order of a folder's entries is not defined
    for (const fs::path& path : here) add(path);
  }
  return found;
}

std::size_t records_in(const fs::path& path, std::span<const std::string> keys) try {
  const auto file = open_records(path);
  return static_cast<std::size_t>(
      std::ranges::count_if(keys, [&](const std::string& key) { return file->find_record(key).has_value(); }));
} catch (const Error&) {
  return 0;
}

}  // namespace

std::vector<OtherFile> files_with_records(const Globals& globals, const Target& target,
                                          std::span<const manifest::OpBucket> buckets) {
  std::vector<std::string> keys;
  for (const manifest::OpBucket& each : buckets) keys.push_back(each.on(target.facts).key());
  std::vector<OtherFile> files;
  if (keys.empty()) return files;
  for (const fs::path& path : candidates(globals))
    if (const std::size_t records = records_in(path, keys); records > 0) files.push_back({path, records});
  std::ranges::stable_sort(files, std::ranges::greater(), &OtherFile::records);
  return files;
}

}  // namespace kiln::cli
