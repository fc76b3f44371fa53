#include "store/seal.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace kiln::store {
namespace {

struct SealedTable {
  std::string_view source;
  std::string_view by_key;  // the manifest's order
  std::string_view
      as_stored;  // the same order in an exported file, whose rows were written by key; takes a third less time
};
constexpr std::array<SealedTable, 3> sealed = {
    {{"record", "SELECT digest FROM record ORDER BY key", "SELECT digest FROM record ORDER BY id"},
     {"candidate",
      "SELECT candidate.digest FROM candidate JOIN record ON record.id = candidate.record "
      "ORDER BY record.key, position",
      "SELECT digest FROM candidate ORDER BY record, position"},
     {"cubin", "SELECT digest FROM cubin ORDER BY key", "SELECT digest FROM cubin ORDER BY id"}}};

template <std::size_t size>
bool copy_exactly(std::span<const std::byte> from, std::array<std::byte, size>& to) {
  if (from.size() != size) return false;
  std::ranges::copy(from, to.begin());
  return true;
}

struct Summary {
  std::int64_t rows = 0;
  manifest::Digest digest{};
  DigestSet digests;  // the rows' digests, if `keep`; without those of a wrong length
};

Summary summarise(Connection& connection, std::string_view source, std::string_view select, bool keep) {
  Summary summary;
  manifest::Hasher hasher;
  hasher.field(source);
  Query query = connection.query(select);
  for (; query.step(); ++summary.rows) {
    hasher.field(query.blob(0));
    manifest::Digest digest{};
    if (keep && copy_exactly(query.blob(0), digest)) summary.digests.insert(digest);
  }
  summary.digest = hasher.finish();
  return summary;
}

void read_manifest(Connection& connection, Seal& seal) {
  const std::int64_t rows = connection.number("SELECT count(*) FROM manifest");
  if (rows == 0) return;
  for (const SealedTable& table : sealed) {
    Query query = connection.query("SELECT row_count, digest FROM manifest WHERE source = ?");
    ManifestRow row{table.source, 0, {}};
    if (!query.bind(table.source).step() || !copy_exactly(query.blob(1), row.digest)) break;
    row.rows = query.integer(0);
    seal.manifest.push_back(row);
  }
  if (seal.manifest.size() != sealed.size() || rows != static_cast<std::int64_t>(sealed.size()))
    seal.flaw = "its manifest is not one of records, candidates and cubins";
}

void read_signatures(Connection& connection, Seal& seal) {
  const auto message = message_of(connection, seal);
  const bool whole = seal.flaw.empty() && !seal.manifest.empty();
  Query query = connection.query("SELECT public_key, signature FROM signature ORDER BY public_key");
  while (query.step()) {
    if (seal.signatures.size() == most_signatures) {
      seal.flaw = fmt::format("it holds more than {} signatures", most_signatures);
      return;
    }
    SealSignature found;
    Signature signature{};
    if (!copy_exactly(query.blob(0), found.key)) {
      seal.flaw = "one of its signatures names no Ed25519 key";
      continue;
    }
    found.valid = whole && copy_exactly(query.blob(1), signature) && verifies(found.key, message, signature);
    if (!found.valid && seal.flaw.empty())
      seal.flaw = fmt::format("the signature by the key with the fingerprint {} is not one over its manifest",
                              fingerprint(found.key));
    seal.signatures.push_back(found);
  }
}

}  // namespace

bool is_sealed(std::string_view source) noexcept {
  return std::any_of(sealed.begin(), sealed.end(), [&](const SealedTable& table) { return table.source == source; });
}

manifest::Digest message_of(Connection& connection, const Seal& seal) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("kiln signature 1"));
  hasher.field(connection.number("PRAGMA user_version"));
  for (const ManifestRow& row : seal.manifest)
    hasher.field(row.source).field(row.rows).field(std::span<const std::byte>(row.digest));
  return hasher.finish();
}

Seal read_seal(Connection& connection) {
  Seal seal;
  read_manifest(connection, seal);
  read_signatures(connection, seal);
  return seal;
}

std::string content_flaw(Connection& connection, SealedTables tables, Seal& seal) {
  for (std::size_t at = 0; at < seal.manifest.size(); ++at) {
    const ManifestRow& stated = seal.manifest[at];
    if (tables == SealedTables::answers && stated.source == "candidate") continue;
    const bool keep = stated.source == "cubin" && !seal.signatures.empty();
    Summary found = summarise(connection, stated.source, sealed[at].as_stored, keep);
    if (found.rows != stated.rows)
      return fmt::format("its manifest states {} {} rows and it holds {}", stated.rows, stated.source, found.rows);
    // The digest covers the order of the rows, so trying both orders accepts no others.
    if (found.digest != stated.digest) found = summarise(connection, stated.source, sealed[at].by_key, keep);
    if (found.digest != stated.digest)
      return fmt::format("the digest of its manifest over its {} rows differs; was it copied while it was written?",
                         stated.source);
    if (keep) seal.cubins = std::move(found.digests);
  }
  return {};
}

void write_manifest(Connection& connection) {
  remove_manifest(connection);
  for (const SealedTable& table : sealed) {
    const Summary summary = summarise(connection, table.source, table.by_key, false);
    connection.query("INSERT INTO manifest (source, row_count, digest) VALUES (?, ?, ?)")
        .bind(table.source)
        .bind(summary.rows)
        .bind(std::span<const std::byte>(summary.digest))
        .run();
  }
}

void remove_manifest(Connection& connection) {
  connection.execute("DELETE FROM signature");
  connection.execute("DELETE FROM manifest");
}

void write_signature(Connection& connection, const PublicKey& key, const Signature& signature) {
  connection.query("INSERT OR REPLACE INTO signature (public_key, signature) VALUES (?, ?)")
      .bind(std::span<const std::byte>(key))
      .bind(std::span<const std::byte>(signature))
      .run();
}

}  // namespace kiln::store
