// The values of a shared store, which nobody guards: each says what it is of and carries its digest, and a signature
// where its writer names a key.
//
//   value     := "kiln shared 1 " digest " " public key or "-" " " signature or "-" "\n" payload      all three in hex
//   digest    := SHA-256(field(payload))
//   signature := Ed25519 over SHA-256(field("kiln shared signature 1") field(space) field(key) field(digest))
//   payload   := a record as one line of JSON, its candidates included, "\n", then each key of its machine code in hex,
//                "\n"
//              | a cubin: each of its fields, in the order of store/fields.hpp, as "length:bytes,", then the zstd frame
//
// with fields of digests as manifest::Hasher takes them. The space of machine code is "code".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/key_ring.hpp"
#include "store/record.hpp"
#include "store/remote.hpp"

namespace kiln::remote {

/// Who signed a value, by what that is worth.
enum class Signed : std::uint8_t { no, by_stranger, by_trusted };

struct SealedRow {
  store::Record record;
  std::vector<manifest::Digest> code;  // keys of its machine code, as the writer had it
  Signed is_signed = Signed::no;
};

/// What a value holds, or why it counts for nothing.
template <class Row>
struct Opened {
  std::optional<Row> row;
  std::string flaw;
};

std::string seal(const store::Record& record, const std::vector<manifest::Digest>& code, const store::PrivateKey* key);
std::string seal(const store::PackedCubin& cubin, const store::PrivateKey& key);

/// Checks digest, signature, key and the limits of each row. Whether the op has such configs is the caller's to check.
Opened<SealedRow> open_row(const store::RemotePlace& place, std::string_view value, const store::KeyRing& keys);
/// The same, of a value that list() gave: it says its key itself.
Opened<SealedRow> open_listed(std::string_view space, std::string_view value, const store::KeyRing& keys);
/// Machine code counts only under a trusted key's signature. What no such key signed is not parsed.
Opened<store::CubinRow> open_code(const manifest::Digest& key, std::string_view value, const store::KeyRing& keys);

/// Who signed a value of machine code; Signed::no where it does not hold.
Signed signer_of_code(const manifest::Digest& key, std::string_view value, const store::KeyRing& keys);

/// Whether the payload has the digest that the value names.
bool is_whole(std::string_view value);

/// Which of two rows of one key a store keeps: the better signed one, else by the merge order. Returns whether `a`
/// takes the place of `b`.
bool comes_before(const SealedRow& a, const SealedRow& b);

}  // namespace kiln::remote
