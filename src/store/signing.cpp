#include "store/signing.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "store/custody.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_signature(const fs::path& path, const std::string& flaw) {
  throw DamagedFile(fmt::format("'{}' is not signed: {}; export what holds and sign that", path.string(), flaw));
}

std::string flaw_of_rows(Connection& connection) {
  constexpr std::int64_t batch = 64;  // so that memory stays bounded
  Flaws flaws;
  std::string record;
  for (bool more = true; more && flaws.empty();) {
    const auto records = list_records_after(connection, record, batch, flaws);
    more = !records.empty();
    if (more) record = records.back().key;
  }
  std::vector<std::byte> cubin;
  for (bool more = true; more && flaws.empty();) {
    const auto cubins = list_cubins_after(connection, cubin, batch, flaws);
    more = !cubins.empty();
    if (more) cubin.assign(cubins.back().key.begin(), cubins.back().key.end());
  }
  return flaws.empty() ? std::string()
                       : fmt::format("its {} '{}' does not hold: {}", flaws[0].source, flaws[0].key, flaws[0].reason);
}

/// Checks every row and returns the valid seal, or a new one. Throws DamagedFile.
Seal sealed_content(const fs::path& path, Connection& connection) {
  if (const auto damage = damage_of(connection); !damage.empty())
    throw DamagedFile(fmt::format("'{}' is not signed: {}", path.string(), damage));
  if (const auto flaw = flaw_of_rows(connection); !flaw.empty()) refuse_signature(path, flaw);
  Seal seal = read_seal(connection);
  if (seal.flaw.empty()) seal.flaw = content_flaw(connection, SealedTables::all, seal);
  if (!seal.flaw.empty()) refuse_signature(path, seal.flaw);
  if (!seal.manifest.empty()) return seal;
  write_manifest(connection);
  return read_seal(connection);
}

}  // namespace

SigningReport sign(const fs::path& path, const PrivateKey& key) {
  const fs::path literal = literal_path(path);
  if (const auto objection = file_objection(literal); !objection.empty())
    throw Error(ErrorKind::no_permission, fmt::format("'{}' is not signed: {}", literal.string(), objection));
  Connection connection = open_existing(literal, Access::read_write);
  try {
    Transaction transaction(connection, Transaction::Kind::write);
    const bool had_none = read_seal(connection).manifest.empty();
    const Seal seal = sealed_content(literal, connection);
    const auto is_same = [&](const SealSignature& each) { return each.key == key.public_key(); };
    if (seal.signatures.size() >= most_signatures && std::ranges::none_of(seal.signatures, is_same))
      throw Error(
          ErrorKind::bad_input,
          fmt::format(
              "'{}' is not signed: it holds {} signatures, as many as a file may; an export of it begins without any",
              literal.string(), seal.signatures.size()));
    write_signature(connection, key.public_key(), key.sign(message_of(connection, seal)));
    transaction.commit();
    return {fingerprint(key.public_key()), seal.manifest[0].rows, seal.manifest[1].rows, seal.manifest[2].rows,
            had_none};
  } catch (const SqliteFailure& failure) {
    throw to_error(literal, "signed", failure);
  }
}

std::vector<SignatureState> signature_states(const Seal& seal, const KeyRing& keys) {
  std::vector<SignatureState> states;
  for (const SealSignature& each : seal.signatures) {
    const KnownKey* revoked = keys.revoked(each.key);
    const KnownKey* trusted = keys.trusted(each.key);
    const KnownKey* known = revoked != nullptr ? revoked : trusted;
    states.push_back({fingerprint(each.key), known != nullptr ? known->name : std::string(), each.valid,
                      trusted != nullptr && each.valid, revoked != nullptr});
  }
  return states;
}

std::vector<SignatureState> signature_states(const fs::path& path, const KeyRing& keys) {
  const fs::path resolved = readable_path(path);
  Connection connection = open_existing(resolved, Access::read_only);
  try {
    Transaction transaction(connection, Transaction::Kind::read);
    const Seal seal = read_seal(connection);
    transaction.commit();
    return signature_states(seal, keys);
  } catch (const SqliteFailure& failure) {
    throw to_error(resolved, "read", failure);
  }
}

}  // namespace kiln::store
