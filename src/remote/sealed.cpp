#include "remote/sealed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kiln/error.hpp"
#include "store/fields.hpp"
#include "store/integrity.hpp"
#include "store/json.hpp"
#include "store/limits.hpp"
#include "store/merge_order.hpp"

namespace kiln::remote {
namespace {

constexpr std::string_view magic = "kiln shared 1 ";
constexpr std::string_view code_space = "code";
constexpr std::size_t most_code = 1024;  // keys of a row's machine code

template <std::size_t size>
std::string hex_of(const std::array<std::byte, size>& bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

template <std::size_t size>
bool parse_hex(std::string_view text, std::array<std::byte, size>& bytes) {
  if (text.size() != 2 * size) return false;
  for (std::size_t i = 0; i < size; ++i) {
    unsigned value = 0;
    const char* const begin = text.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) return false;
    bytes[i] = static_cast<std::byte>(value);
  }
  return text == hex_of(bytes);  // one spelling each
}

manifest::Digest digest_of(std::string_view payload) { return manifest::Hasher().field(payload).finish(); }

manifest::Digest message_of(std::string_view space, std::string_view key, const manifest::Digest& payload) {
  return manifest::Hasher()
      .field(std::string_view("kiln shared signature 1"))
      .field(space)
      .field(key)
      .field(std::span<const std::byte>(payload))
      .finish();
}

std::string seal_payload(std::string_view space, std::string_view key, std::string_view payload,
                         const store::PrivateKey* signer) {
  const manifest::Digest digest = digest_of(payload);
  std::string public_key = "-", signature = "-";
  if (signer != nullptr) {
    public_key = hex_of(signer->public_key());
    signature = hex_of(signer->sign(message_of(space, key, digest)));
  }
  return fmt::format("{}{} {} {}\n{}", magic, hex_of(digest), public_key, signature, payload);
}

/// A value's parts, as it names them.
struct Parts {
  std::string_view digest, key, signature, payload;
};

std::optional<Parts> split(std::string_view value) {
  if (!value.starts_with(magic)) return std::nullopt;
  const std::size_t end = value.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = value.substr(magic.size(), end - magic.size());
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  return Parts{line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1),
               value.substr(end + 1)};
}

struct Checked {
  std::string_view payload;
  Signed is_signed = Signed::no;
  std::string flaw;
};

Checked check(std::string_view space, std::string_view key, std::string_view value, const store::KeyRing& keys) {
  const auto flawed = [](const char* flaw) { return Checked{{}, Signed::no, flaw}; };
  if (value.size() > store::most_remote_bytes) return flawed("is larger than any value");
  const auto parts = split(value);
  manifest::Digest named{};
  if (!parts || !parse_hex(parts->digest, named)) return flawed("is no value of Kiln's, or of another version");
  if (named != digest_of(parts->payload)) return flawed("does not have the digest that it names");
  if (parts->key == "-" && parts->signature == "-") return {parts->payload, Signed::no, {}};
  store::PublicKey public_key{};
  store::Signature signature{};
  if (!parse_hex(parts->key, public_key) || !parse_hex(parts->signature, signature) ||
      !store::verifies(public_key, message_of(space, key, named), signature))
    return flawed("has a signature that does not hold for its place and content");
  return {parts->payload, keys.trusted(public_key) != nullptr ? Signed::by_trusted : Signed::by_stranger, {}};
}

Opened<SealedRow> parse_row(std::string_view space, const Checked& checked) {
  const auto flawed = [](std::string flaw) { return Opened<SealedRow>{std::nullopt, std::move(flaw)}; };
  std::string_view rest = checked.payload;
  const auto next_line = [&] {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    return line;
  };
  SealedRow row{{}, {}, checked.is_signed};
  try {
    row.record = store::record_from_json(next_line());
  } catch (const Error&) {
    return flawed("holds no record");
  }
  if (const std::string flaw = store::flaw_of(row.record); !flaw.empty()) return flawed("holds an invalid record");
  for (const store::TriedCandidate& each : row.record.candidates)
    if (!store::flaw_of(each).empty()) return flawed("holds an invalid candidate");
  if (store::place_of(row.record).space != space) return flawed("is of another bucket");
  while (!rest.empty()) {
    const std::string_view key = next_line();
    manifest::Digest parsed{};
    if (!parse_hex(key, parsed) || row.code.size() == most_code) return flawed("names machine code that cannot be");
    row.code.push_back(parsed);
  }
  return {std::move(row), {}};
}

/// A cubin's fields, each "length:bytes,".
struct FieldWriter {
  std::string& text;
  void operator()(const char*, const std::string& value) const { text += fmt::format("{}:{},", value.size(), value); }
  void operator()(const char* name, std::int64_t value) const { (*this)(name, std::to_string(value)); }
};

struct FieldReader {
  std::string_view& rest;
  bool& is_valid;
  void operator()(const char*, std::string& value) const {
    std::size_t size = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    const auto digits = static_cast<std::size_t>(parsed.ptr - rest.data());
    is_valid = is_valid && parsed.ec == std::errc() && digits < rest.size() && rest[digits] == ':' &&
               size < rest.size() - digits - 1 && rest[digits + 1 + size] == ',';
    if (!is_valid) return;
    value = rest.substr(digits + 1, size);
    rest.remove_prefix(digits + size + 2);
  }
  void operator()(const char* name, std::int64_t& value) const {
    std::string text;
    (*this)(name, text);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    is_valid = is_valid && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  }
};

}  // namespace

std::string seal(const store::Record& record, const std::vector<manifest::Digest>& code, const store::PrivateKey* key) {
  std::string payload = store::to_json(record) + '\n';
  for (const manifest::Digest& each : code) payload += manifest::to_hex(each) + '\n';
  const store::RemotePlace place = store::place_of(record);
  return seal_payload(place.space, place.key, payload, key);
}

std::string seal(const store::PackedCubin& cubin, const store::PrivateKey& key) {
  std::string payload;
  store::each_cubin_field(cubin, FieldWriter{payload});
  for (const std::byte each : cubin.image) payload += static_cast<char>(each);
  return seal_payload(code_space, manifest::to_hex(cubin.key), payload, &key);
}

Opened<SealedRow> open_row(const store::RemotePlace& place, std::string_view value, const store::KeyRing& keys) {
  const Checked checked = check(place.space, place.key, value, keys);
  if (!checked.flaw.empty()) return {std::nullopt, checked.flaw};
  Opened<SealedRow> opened = parse_row(place.space, checked);
  if (opened.row && opened.row->record.key != place.key) return {std::nullopt, "is of another bucket"};
  return opened;
}

Opened<SealedRow> open_listed(std::string_view space, std::string_view value, const store::KeyRing& keys) {
  const auto parts = split(value);
  if (!parts || value.size() > store::most_remote_bytes) return {std::nullopt, "is no value of Kiln's"};
  const Opened<SealedRow> claimed = parse_row(space, {parts->payload, Signed::no, {}});
  return claimed.row ? open_row({std::string(space), claimed.row->record.key}, value, keys) : claimed;
}

Opened<store::CubinRow> open_code(const manifest::Digest& key, std::string_view value, const store::KeyRing& keys) {
  const auto flawed = [](const char* flaw) { return Opened<store::CubinRow>{std::nullopt, flaw}; };
  const Checked checked = check(code_space, manifest::to_hex(key), value, keys);
  if (!checked.flaw.empty()) return {std::nullopt, checked.flaw};
  if (checked.is_signed != Signed::by_trusted) return flawed("is machine code that no trusted key signed");
  store::PackedCubin packed;
  std::string_view rest = checked.payload;
  packed.key = key;
  bool is_valid = true;
  store::each_cubin_field(packed, FieldReader{rest, is_valid});
  if (!is_valid) return flawed("holds no machine code");
  const auto* const begin = reinterpret_cast<const std::byte*>(rest.data());
  packed.image.assign(begin, begin + rest.size());
  if (!store::flaw_of(packed).empty()) return flawed("holds no machine code");
  Opened<store::CubinRow> opened{store::unpack(packed), {}};
  if (!opened.row) opened.flaw = "holds no machine code";
  return opened;
}

Signed signer_of_code(const manifest::Digest& key, std::string_view value, const store::KeyRing& keys) {
  const Checked checked = check(code_space, manifest::to_hex(key), value, keys);
  if (checked.is_signed == Signed::by_trusted && !open_code(key, value, keys).row) return Signed::no;
  return checked.is_signed;
}

bool is_whole(std::string_view value) {
  const auto parts = split(value);
  manifest::Digest named{};
  return parts && parse_hex(parts->digest, named) && named == digest_of(parts->payload);
}

bool comes_before(const SealedRow& a, const SealedRow& b) {
  return a.is_signed != b.is_signed ? a.is_signed > b.is_signed : store::is_better(a.record, b.record);
}

}  // namespace kiln::remote
