// The public keys whose signatures are trusted, by folder:
//
//   FOLDER/NAME.pem            a trusted key, called NAME
//   FOLDER/revoked/NAME.pem    a key that is no longer trusted, in whichever folder it lies
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "store/keys.hpp"

namespace kiln::store {

struct KnownKey {
  PublicKey key{};
  std::string name;
  std::filesystem::path file;
};

class KeyRing {
 public:
  KeyRing() = default;
  /// Skips folders and keys that cannot be read or that others may write, and names them in `warnings`. A revocation
  /// counts whoever may write it, since it can only withdraw trust.
  static KeyRing read(std::span<const std::filesystem::path> folders, std::vector<std::string>& warnings);

  /// Returns null when no folder holds the key, or when a folder revokes it.
  [[nodiscard]] const KnownKey* trusted(const PublicKey& key) const noexcept;
  [[nodiscard]] const KnownKey* revoked(const PublicKey& key) const noexcept;

 private:
  std::vector<KnownKey> keys_, revoked_;
};

/// Returns `chosen`, else the folders of $KILN_TRUSTED_KEYS, else the user's, $XDG_CONFIG_HOME/kiln/trusted or
/// $HOME/.config/kiln/trusted. Then appends /etc/kiln/trusted. The user's and the last one count only if they exist.
std::vector<std::filesystem::path> key_folders(std::span<const std::filesystem::path> chosen);

}  // namespace kiln::store
