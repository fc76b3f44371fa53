// What makes a stored row believable: a digest over its table, key and payload, and values that Kiln itself could have
// written.
//
// digest := SHA-256 over fields as manifest::Hasher takes them: the table's name, then each column in the order of
//           cache/schema.sql, without id and digest. A REAL counts as the 64 bits of its IEEE 754 form, a truth value
//           as 0 or 1. A record's columns are followed by the number of its choices and, choice by choice, theirs from
//           role on. A candidate's columns are preceded by its record's key and its position.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store/record.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

PackedCubin pack(const CubinRow& cubin);
/// Nothing when the payload does not hold what it says.
std::optional<CubinRow> unpack(const PackedCubin& packed);

manifest::Digest digest_of(const Record& record);  // without its candidates
manifest::Digest digest_of(std::string_view record_key, std::int64_t position, const Candidate& candidate);
manifest::Digest digest_of(const PackedCubin& packed);

/// Why Kiln would not write this, or an empty string.
std::string flaw_of(const Record& record);  // without its candidates
std::string flaw_of(const Choice& choice);
std::string flaw_of(const Candidate& candidate);
std::string flaw_of(const PackedCubin& packed);

bool is_utf8(std::string_view text) noexcept;

/// A row that was read and not believed.
struct Flaw {
  std::string source;  // the table
  std::string key;
  std::string reason;
  /// Deletes the row if, read again inside a write transaction, it still does not hold; false when it is sound by now.
  std::function<bool(Connection&)> remove;
};
inline constexpr std::string_view digest_mismatch = "its digest does not match its content";

/// Inside a write transaction: removes the rows, and notes them in the quarantine table.
void set_aside(Connection& connection, const std::vector<Flaw>& flaws);

}  // namespace kiln::store
