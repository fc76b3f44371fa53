#include "store/key_ring.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "store/custody.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;
using manifest::environment;

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

/// Reads the folder `revoked` of a folder of keys: every file in it and below, through links too.
class Revocations {
 public:
  Revocations(std::vector<KnownKey>& revoked, std::vector<std::string>& warnings)
      : revoked_(revoked), warnings_(warnings) {}

  /// Returns why a revocation could not be read, or an empty string.
  std::string read(const fs::path& top) {
    std::error_code failure;
    if (fs::symlink_status(top, failure).type() != fs::file_type::not_found) walk(top);
    if (unread_ > 1) why_ += fmt::format(", and {} more cannot be read", unread_ - 1);
    return std::move(why_);
  }

 private:
  void add_unread(const std::string& why) {
    if (unread_++ == 0) why_ = why;
  }

  void walk(const fs::path& at) {
    constexpr std::int64_t most_files = 100000;
    std::error_code failure;
    if (const auto type = fs::status(at, failure).type(); type != fs::file_type::directory) {
      if (++files_ > most_files) return add_unread(fmt::format("there are more than {} files", most_files));
      return read_file(at);
    }
    if (const Identity folder = identity_of(at); !seen_.emplace(folder.device, folder.inode).second) return;
    std::vector<fs::path> entries;
    for (fs::directory_iterator each(at, failure), end; !failure && each != end && files_ <= most_files;
         each.increment(failure))
      entries.push_back(each->path());
    if (failure) add_unread(fmt::format("the folder '{}' cannot be read: {}", at.string(), failure.message()));
    std::sort(entries.begin(), entries.end());
    for (const fs::path& each : entries) walk(each);
  }

  void read_file(const fs::path& file) {
    try {
      const auto keys = read_every_key(file);
      for (const PublicKey& key : keys) revoked_.push_back({key, file.stem().string(), file});
      if (keys.empty())
        warnings_.push_back(fmt::format("nothing is revoked by '{}': it holds no Ed25519 key", file.string()));
    } catch (const Error& error) {
      add_unread(error.what());
    }
  }

  std::vector<KnownKey>& revoked_;
  std::vector<std::string>& warnings_;
  std::set<std::pair<dev_t, ino_t>> seen_;  // folders, since links may lead in circles
  std::int64_t files_ = 0, unread_ = 0;
  std::string why_;
};

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
    const auto unread = Revocations(ring.revoked_, warnings).read(folder / "revoked");
    if (unread.empty()) {
      read_trusted(folder, ring.keys_, warnings);
      continue;
    }
    ring.unread_.push_back(fmt::format(
        "the keys of '{}' are not trusted, because what '{}' revokes cannot be read: {}; give each file there keys in PEM or "
        "DER, and move other files away",
        folder.string(), (folder / "revoked").string(), unread));
    warnings.push_back(ring.unread_.back());
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
    // A folder that cannot be looked at may hold revocations.
    std::error_code failure;
    if (!folder.empty() && fs::status(folder, failure).type() != fs::file_type::not_found) folders.push_back(folder);
  };
  if (folders.empty()) add_if_there(users_key_folder());
  add_if_there("/etc/kiln/trusted");
  return folders;
}

}  // namespace kiln::store
