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

/// A digest is its own hash. Eight times as fast to fill with the digests of a large file as sorting them is.
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

/// Each costs a check of tens of microseconds when the file is opened.
inline constexpr std::size_t most_signatures = 64;

struct Seal {
  std::vector<ManifestRow> manifest;      // of record, candidate and cubin; empty: the file is not sealed
  std::vector<SealSignature> signatures;  // by public key
  DigestSet cubins;                       // those of the signed cubins; see content_flaw
  std::string flaw;                       // why it cannot be believed, whatever the rows are; or empty
};
/// Reads the seal and verifies its signatures; the rows are not looked at.
Seal read_seal(Connection& connection);

enum class SealedTables : std::uint8_t {
  answers,  // what look-ups read: records and cubins
  all,      // the candidates too, of which there are far more
};
/// How the digests of the rows differ from the manifest, or an empty string when they agree or there is no manifest.
/// Remembers the cubins of a signed file.
std::string content_flaw(Connection& connection, SealedTables tables, Seal& seal);

/// Both inside a write transaction. A new manifest begins without signatures; a change of a sealed row removes both.
void write_manifest(Connection& connection);
void remove_manifest(Connection& connection);

/// Whether the manifest covers the table.
bool is_sealed(std::string_view source) noexcept;

/// What is signed.
manifest::Digest message_of(Connection& connection, const Seal& seal);
/// Inside a write transaction; replaces a signature of the same key.
void write_signature(Connection& connection, const PublicKey& key, const Signature& signature);

}  // namespace kiln::store
