#include "manifest/key.hpp"

#include <fmt/format.h>

// The SHA256_* functions are deprecated. EVP_Digest* would first initialise OpenSSL (error texts, providers,
// configuration file), which takes 1.5 ms; all hashing up to the first launch takes microseconds.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <bit>
#include <new>

namespace kiln::manifest {
namespace {

std::array<std::byte, 8> little_endian(std::uint64_t number) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  return bytes;
}

template <class State>
SHA256_CTX* as_context(State& state) noexcept {
  static_assert(sizeof(SHA256_CTX) <= sizeof(State) && alignof(SHA256_CTX) <= alignof(State));
  return std::launder(reinterpret_cast<SHA256_CTX*>(&state));
}

}  // namespace

std::string to_hex(const Digest& digest) {
  std::string text;
  text.reserve(2 * digest.size());
  for (const std::byte byte : digest) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

Hasher::Hasher() { SHA256_Init(::new (&state_) SHA256_CTX); }

Hasher& Hasher::field(std::span<const std::byte> bytes) {
  const auto length = little_endian(bytes.size());
  SHA256_Update(as_context(state_), length.data(), length.size());
  SHA256_Update(as_context(state_), bytes.data(), bytes.size());
  return *this;
}

Hasher& Hasher::field(std::string_view text) { return field(std::as_bytes(std::span(text.data(), text.size()))); }

Hasher& Hasher::field(std::int64_t number) {
  return field(std::span<const std::byte>(little_endian(std::bit_cast<std::uint64_t>(number))));
}

Digest Hasher::finish() {
  Digest digest;
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), as_context(state_));
  return digest;
}

std::string_view to_string(Regime regime) noexcept { return regime == Regime::cold_l2 ? "cold" : "hot"; }

std::string Bucket::key() const {
  std::string key = fmt::format("{}@{} |", op->name, op->revision);
  for (std::size_t i = 0; i < op->axes.size(); ++i) {
    key += fmt::format(" {}={}:{}", op->axes[i].name, policy_of(*op, i, edge).text(), edge.axes[i]);
  }
  key += " |";
  for (std::size_t i = 0; i < op->selections.size(); ++i) {
    key += fmt::format(" {}={}", op->selections[i].name, op->selections[i].values[edge.selections[i]]);
  }
  return key + fmt::format(" | {} | {}", device->device_class_for(*op), to_string(regime));
}

}  // namespace kiln::manifest
