#include "cli/installed.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "process/files.hpp"

namespace kiln::cli {

namespace fs = std::filesystem;

fs::path installed_data() {
  const fs::path program = process::running_program();
  if (program.empty()) return {};
  std::error_code failure;
  const fs::path folder = program.parent_path(), data = fs::path("share") / "kiln";
  return fs::is_directory(folder / data, failure) ? folder / data : folder.parent_path() / data;
}

std::string or_installed(const std::string& name, const fs::path& folder) {
  std::error_code failure;
  if (name.empty() || fs::path(name).has_parent_path() || fs::exists(name, failure)) return name;
  const fs::path installed = installed_data() / folder / name;
  return fs::is_regular_file(installed, failure) ? installed.string() : name;
}

std::string where_else(const std::string& name) {
  const fs::path asked(name);
  std::error_code failure;
  if (name.empty() || asked.has_parent_path()) return {};
  std::vector<std::string> likely = {name, name + ".toml", name + ".kiln", name + ".jsonl"};
  if (asked.extension() == ".kiln") likely.push_back(asked.stem().string() + ".jsonl");  // what a checkout has
  for (const fs::path& folder :
       {fs::path("cache"), fs::path("cache/workloads"), installed_data(), installed_data() / "workloads"})
    for (const std::string& each : likely)
      if (const fs::path other = folder / each; fs::is_regular_file(other, failure))
        return fmt::format("; there is {}", other.string());
  return {};
}

void refuse_absent(const std::string& name) {
  std::error_code failure;
  if (!fs::exists(name, failure) && !failure)
    throw Error(ErrorKind::bad_input, fmt::format("the file {} does not exist{}", name, where_else(name)));
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
