#include "cuda/search_path.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "cuda/library.hpp"

namespace kiln::cuda {
namespace {

using std::filesystem::path;

void append_existing(std::vector<path>& folders, const path& folder) {
  std::error_code failure;
  if (!folder.empty() && std::filesystem::is_directory(folder, failure) &&
      std::find(folders.begin(), folders.end(), folder) == folders.end()) {
    folders.push_back(folder);
  }
}

/// Appends LIB/python3.*/LEAF for each version under LIB, the greatest name first.
void append_versions(std::vector<path>& folders, const path& lib, const char* leaf) {
  std::vector<path> versions;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(lib, failure), end; !failure && at != end; at.increment(failure)) {
    if (at->path().filename().string().starts_with("python3")) versions.push_back(at->path());
  }
  std::sort(versions.rbegin(), versions.rend());
  for (const path& version : versions) append_existing(folders, version / leaf);
}

/// The file that holds this code, by the loader's name of it, which for a program need not be a path.
path file_of_this_code() {
  static const int here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? path(info.dli_fname) : path();
}

}  // namespace

std::vector<path> toolkit_folders() {
  std::vector<path> folders;
  append_existing(folders, environment("CUDA_HOME"));
  append_existing(folders, environment("CUDA_PATH"));
  append_existing(folders, "/usr/local/cuda");
  return folders;
}

path packages_around(const path& file) {
  for (path folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages") return folder;
  return {};
}

std::vector<path> site_packages() {
  std::vector<path> folders;
  append_existing(folders, packages_around(file_of_this_code()));
  for (const char* prefix : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string value = environment(prefix); !value.empty()) {
      append_versions(folders, path(value) / "lib", "site-packages");
    }
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    append_versions(folders, path(home) / ".local/lib", "site-packages");
  }
  append_versions(folders, "/usr/local/lib", "dist-packages");
  append_versions(folders, "/usr/local/lib", "site-packages");
  append_existing(folders, "/usr/lib/python3/dist-packages");
  append_versions(folders, "/usr/lib", "site-packages");
  return folders;
}

std::vector<std::string> existing_files(const std::vector<path>& folders, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  std::error_code failure;
  for (const path& folder : folders) {
    for (const std::string& name : names) {
      if (std::filesystem::exists(folder / name, failure)) found.push_back((folder / name).string());
    }
  }
  return found;
}

std::vector<path> wheel_folders(const std::vector<std::string_view>& inside) {
  std::vector<path> folders;
  for (const path& site : site_packages()) {
    for (const std::string_view folder : inside) append_existing(folders, site / folder);
  }
  return folders;
}

std::vector<std::string> library_files(const std::vector<std::string>& names,
                                       const std::vector<std::string_view>& inside_toolkits,
                                       const std::vector<std::string_view>& wheels) {
  std::vector<path> folders;
  for (const path& toolkit : toolkit_folders())
    for (const std::string_view inside : inside_toolkits) folders.push_back(toolkit / inside);
  for (path& folder : wheel_folders(wheels)) folders.push_back(std::move(folder));
  std::vector<std::string> all = names;
  for (std::string& file : existing_files(folders, names)) all.push_back(std::move(file));
  return all;
}

std::vector<path> toolkit_include_directories() {
  std::vector<path> candidates;
  for (const auto& folder : toolkit_folders()) candidates.push_back(folder / "include");
  for (const auto& folder : wheel_folders({"nvidia/cu13/include", "nvidia/cuda_runtime/include"})) {
    candidates.push_back(folder);
  }
  std::error_code failure;
  for (const auto& include : candidates) {
    if (!std::filesystem::exists(include / "cuda_fp16.h", failure)) continue;
    std::vector<path> found = {include};
    if (std::filesystem::is_directory(include / "cccl", failure)) found.push_back(include / "cccl");
    return found;
  }
  return {};
}

}  // namespace kiln::cuda
