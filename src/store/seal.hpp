// The seal of an exported file: a manifest over the digests of its rows, and signatures over the manifest.
//
//   manifest row := source, row_count, SHA-256(field(source) field(digest of each row, in the table's order))
//   message      := SHA-256(field("kiln signature 1") field(user_version)
//                           (field(source) field(row_count) field(digest)) for record, candidate, cubin)
//   signature    := Ed25519 over the 32 bytes of the message
//
// with fields as manifest::Hasher takes them.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "manifest/key.hpp"
#include "store/keys.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// A digest's first bytes are its hash. Filling this set is eight times as fast as sorting the digests of a large file.
struct LeadingBytes {
  std::size_t operator()(const manifest::Digest& digest) const noexcept {
    std::size_t hash = 0;
    std::memcpy(&hash, digest.data(), sizeof hash);
    return hash;
  }
};
using DigestSet = std::unordered_set<manifest::Digest, LeadingBytes>;

struct ManifestRow {
  std::string_view source;
  std::int64_t rows = 0;
  manifest::Digest digest{};
};

struct SealSignature {
  PublicKey key{};
  bool valid = false;
};

/// Opening a file takes tens of microseconds for each signature.
inline constexpr std::size_t most_signatures = 64;

struct Seal {
  std::vector<ManifestRow> manifest;      // record, candidate, cubin; empty: the file is not sealed
  std::vector<SealSignature> signatures;  // sorted by public key
  DigestSet cubins;                       // the digests of a signed file's cubins, filled by content_flaw
  std::string flaw;                       // why the seal itself is invalid, or empty
};
/// Reads the seal and verifies its signatures over the manifest. Does not read the rows.
Seal read_seal(Connection& connection);

enum class SealedTables : std::uint8_t {
  answers,  // records and cubins, which look-ups read
  all,      // also candidates, of which there are far more
};
/// Returns how the digests of the rows differ from the manifest. Empty when they agree or there is no manifest. Fills
/// seal.cubins for a signed file.
std::string content_flaw(Connection& connection, SealedTables tables, Seal& seal);

/// Both also remove the signatures. Precondition: a write transaction is open.
void write_manifest(Connection& connection);
void remove_manifest(Connection& connection);

/// Returns whether the manifest covers the table.
bool is_sealed(std::string_view source) noexcept;

/// Returns the digest that is signed.
manifest::Digest message_of(Connection& connection, const Seal& seal);
/// Stores a signature, replacing one of the same key. Precondition: a write transaction is open.
void write_signature(Connection& connection, const PublicKey& key, const Signature& signature);

}  // namespace kiln::store
