#include "store/key_ring.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kiln/error.hpp"
#include "store/custody.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_keys = 1024;  // in one folder

/// Returns the *.pem files of a folder, sorted. Adds a warning when the folder cannot be listed.
std::vector<fs::path> list_keys(const fs::path& folder, std::vector<std::string>& warnings) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator each(folder, failure), end; !failure && each != end; each.increment(failure))
    if (each->path().extension() == ".pem") files.push_back(each->path());
  if (failure)
    warnings.push_back(fmt::format("the folder of keys '{}' cannot be read: {}", folder.string(), failure.message()));
  std::sort(files.begin(), files.end());
  if (files.size() > most_keys) {
    warnings.push_back(fmt::format("the folder of keys '{}' holds {} keys; those after the first {} are left out",
                                   folder.string(), files.size(), most_keys));
    files.resize(most_keys);
  }
  return files;
}

void read_revoked(const fs::path& folder, std::vector<KnownKey>& revoked, std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return;
  for (const fs::path& file : list_keys(folder, warnings)) {
    try {
      revoked.push_back({read_public_key(file), file.stem().string(), file});
    } catch (const Error& error) {
      warnings.push_back(fmt::format("nothing is revoked by '{}': {}", file.string(), error.what()));
    }
  }
}

void read_trusted(const fs::path& folder, std::vector<KnownKey>& keys, std::vector<std::string>& warnings) {
  const auto files = list_keys(folder, warnings);
  if (const auto objection = files.empty() ? std::string() : folder_objection(folder); !objection.empty()) {
    warnings.push_back(fmt::format("the keys of '{}' are not trusted: {}", folder.string(), objection));
    return;
  }
  for (const fs::path& file : files) {
    try {
      // Owner check and reading must both use the file that a link leads to.
      std::error_code failure;
      const fs::path resolved = fs::canonical(file, failure);
      if (const auto [trusted, why] = owner_trust(file); !trusted)
        warnings.push_back(fmt::format("the key '{}' is not trusted: {}", file.string(), why));
      else
        keys.push_back({read_public_key(failure ? file : resolved), file.stem().string(), file});
    } catch (const Error& error) {
      warnings.push_back(fmt::format("a key is left out: {}", error.what()));
    }
  }
}

const KnownKey* find(const std::vector<KnownKey>& keys, const PublicKey& key) noexcept {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const KnownKey& each) { return each.key == key; });
  return at == keys.end() ? nullptr : &*at;
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<fs::path> split(std::string_view paths) {
  std::vector<fs::path> parts;
  while (!paths.empty()) {
    const auto colon = std::min(paths.find(':'), paths.size());
    if (colon > 0) parts.emplace_back(paths.substr(0, colon));
    paths.remove_prefix(std::min(colon + 1, paths.size()));
  }
  return parts;
}

fs::path users_key_folder() {
  // The XDG specification says to ignore relative paths.
  if (const fs::path config = environment("XDG_CONFIG_HOME"); config.is_absolute()) return config / "kiln" / "trusted";
  if (const fs::path home = environment("HOME"); home.is_absolute()) return home / ".config" / "kiln" / "trusted";
  return {};
}

}  // namespace

KeyRing KeyRing::read(std::span<const fs::path> folders, std::vector<std::string>& warnings) {
  KeyRing ring;
  for (const fs::path& folder : folders) {
    read_trusted(folder, ring.keys_, warnings);
    read_revoked(folder / "revoked", ring.revoked_, warnings);
  }
  return ring;
}

const KnownKey* KeyRing::trusted(const PublicKey& key) const noexcept {
  return revoked(key) == nullptr ? find(keys_, key) : nullptr;
}

const KnownKey* KeyRing::revoked(const PublicKey& key) const noexcept { return find(revoked_, key); }

std::vector<fs::path> key_folders(std::span<const fs::path> chosen) {
  std::vector<fs::path> folders(chosen.begin(), chosen.end());
  if (folders.empty()) folders = split(environment("KILN_TRUSTED_KEYS"));
  const auto add_if_there = [&](const fs::path& folder) {
    std::error_code ignored;
    if (fs::is_directory(folder, ignored)) folders.push_back(folder);
  };
  if (folders.empty()) add_if_there(users_key_folder());
  add_if_there("/etc/kiln/trusted");
  return folders;
}

}  // namespace kiln::store
