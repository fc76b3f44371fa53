// The keys whose signatures count, by folder:
//
//   FOLDER/NAME.pem            a trusted key, called NAME
//   FOLDER/revoked/NAME.pem    a key that is trusted no more, from whichever folder it comes
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
  /// A folder or a key that others could have written, or that cannot be read, is left out; `warnings` names it. A
  /// revocation counts whoever wrote it: it can only take trust away.
  static KeyRing read(std::span<const std::filesystem::path> folders, std::vector<std::string>& warnings);

  /// Null when no folder holds the key, or when one has revoked it.
  [[nodiscard]] const KnownKey* trusted(const PublicKey& key) const noexcept;
  [[nodiscard]] const KnownKey* revoked(const PublicKey& key) const noexcept;

 private:
  std::vector<KnownKey> keys_, revoked_;
};

/// `chosen`, else those of $KILN_TRUSTED_KEYS, else $XDG_CONFIG_HOME/kiln/trusted or $HOME/.config/kiln/trusted; then
/// the machine's own, /etc/kiln/trusted. The last two only where they exist.
std::vector<std::filesystem::path> key_folders(std::span<const std::filesystem::path> chosen);

}  // namespace kiln::store
