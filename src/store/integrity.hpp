// Checks of stored rows: a digest over table, key and payload, and limits on values.
//
// digest := SHA-256 over fields as manifest::Hasher takes them: the table's name, then each column in the order of
//           cache/schema.sql, without id and digest. A REAL is hashed as the 64 bits of its IEEE 754 form, a boolean
//           as 0 or 1. After a record's columns come the number of its choices and the columns of each from `role` on.
//           Before a candidate's columns come its record's key and its position.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store/record.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// Throws Error(bad_input) for names that are not UTF-8 or an image that is too large, and Error(io) as compress()
/// does.
PackedCubin pack(const CubinRow& cubin);
/// Returns nothing when the image cannot be decompressed to image_bytes, or a list of names is not one.
std::optional<CubinRow> unpack(const PackedCubin& packed);

manifest::Digest digest_of(const Record& record);  // without candidates
manifest::Digest digest_of(std::string_view record_key, std::int64_t position, const TriedCandidate& candidate);
manifest::Digest digest_of(const PackedCubin& packed);

/// All return why Kiln refuses to store the row, or an empty string.
std::string flaw_of(const Record& record);  // without candidates
std::string flaw_of(const Choice& choice);
std::string flaw_of(const TriedCandidate& candidate);
std::string flaw_of(const PackedCubin& packed);

/// A stored row that failed its check.
struct Flaw {
  std::string source;  // the table
  std::string key;
  std::string reason;
  /// Reads the row again and deletes it if it still fails its check; else returns false. Precondition: a write
  /// transaction.
  std::function<bool(Connection&)> remove;
};
inline constexpr std::string_view digest_mismatch = "its digest does not match its content";

/// Deletes the rows and lists them in the quarantine table. Precondition: a write transaction is open.
void set_aside(Connection& connection, const std::vector<Flaw>& flaws);

}  // namespace kiln::store
