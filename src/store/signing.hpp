// Signing files, and saying who has.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/key_ring.hpp"
#include "store/seal.hpp"

namespace kiln::store {

struct SigningReport {
  std::string fingerprint;  // of the key
  std::int64_t records = 0, candidates = 0, cubins = 0;
  bool sealed = false;  // the file had no manifest and was given one
};
/// Signs a file whose rows all hold, after sealing it if it is not. A signature of the same key is replaced; those of
/// others stay. Throws as File::open does, and Error(bad_file) for a row or a seal that does not hold; the file's bytes
/// are then unchanged.
SigningReport sign(const std::filesystem::path& path, const PrivateKey& key);

struct SignatureState {
  std::string fingerprint;
  std::string name;  // empty for a key that no folder holds
  bool valid = false, trusted = false, revoked = false;
};
std::vector<SignatureState> signature_states(const Seal& seal, const KeyRing& keys);
/// Those of a file, even when its seal is broken. Throws Error for a file that cannot be opened at all.
std::vector<SignatureState> signature_states(const std::filesystem::path& path, const KeyRing& keys);

}  // namespace kiln::store
