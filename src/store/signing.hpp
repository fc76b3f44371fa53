// Signing files, and listing their signatures.
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
/// Checks every row, seals the file if it is not sealed, and signs it. Replaces a signature of the same key and keeps
/// those of others. Throws as File::open does, Error(bad_file) for an invalid row or seal, and Error(bad_input) for a
/// file with most_signatures; the file is then unchanged.
SigningReport sign(const std::filesystem::path& path, const PrivateKey& key);

struct SignatureState {
  std::string fingerprint;
  std::string name;  // empty for a key that no folder holds
  bool valid = false, trusted = false, revoked = false;
};
std::vector<SignatureState> signature_states(const Seal& seal, const KeyRing& keys);
/// Reads the signatures of a file, even when its seal is invalid. Throws as File::open does.
std::vector<SignatureState> signature_states(const std::filesystem::path& path, const KeyRing& keys);

}  // namespace kiln::store
