#include "cli/installed.hpp"

#include <algorithm>

namespace kiln::cli {

namespace fs = std::filesystem;

fs::path installed_data() {
  std::error_code failure;
  const fs::path program = fs::read_symlink("/proc/self/exe", failure);
  return failure ? fs::path() : program.parent_path().parent_path() / "share" / "kiln";
}

std::string or_installed(const std::string& name, const fs::path& folder) {
  std::error_code failure;
  if (name.empty() || fs::path(name).has_parent_path() || fs::exists(name, failure)) return name;
  const fs::path installed = installed_data() / folder / name;
  return fs::is_regular_file(installed, failure) ? installed.string() : name;
}

std::vector<std::string> installed_records() {
  std::vector<std::string> names;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(installed_data(), failure))
    if (entry.path().extension() == ".kiln") names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace kiln::cli
