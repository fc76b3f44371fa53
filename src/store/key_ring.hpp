// The public keys whose signatures are trusted, by folder:
//
//   FOLDER/NAME.pem            a trusted key, called NAME
//   FOLDER/revoked/...         keys that are no longer trusted, in whichever folder they lie: every file below it, whatever
//                              its name, with all its keys in PEM or DER, certificates and private keys too
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
  /// counts whoever may write it, since it can only withdraw trust. If a revocation cannot be read, it may be one of
  /// any key of its folder, so none of those is trusted.
  static KeyRing read(std::span<const std::filesystem::path> folders, std::vector<std::string>& warnings);

  /// Returns null when no folder holds the key, or when a folder revokes it.
  [[nodiscard]] const KnownKey* trusted(const PublicKey& key) const noexcept;
  [[nodiscard]] const KnownKey* revoked(const PublicKey& key) const noexcept;
  /// Returns why revocations could not be read, a sentence for each folder of keys.
  [[nodiscard]] const std::vector<std::string>& unread_revocations() const noexcept { return unread_; }

 private:
  std::vector<KnownKey> keys_, revoked_;
  std::vector<std::string> unread_;
};

/// Returns `chosen`, else the folders of $KILN_TRUSTED_KEYS, else the user's, $XDG_CONFIG_HOME/kiln/trusted or
/// $HOME/.config/kiln/trusted. Then appends /etc/kiln/trusted. The user's and the last one count only if they exist.
std::vector<std::filesystem::path> key_folders(std::span<const std::filesystem::path> chosen);

}  // namespace kiln::store
