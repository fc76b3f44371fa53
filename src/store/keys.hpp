// Ed25519 keys in PEM files, signing and verifying.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct evp_pkey_st;

namespace kiln::store {

using PublicKey = std::array<std::byte, 32>;
using Signature = std::array<std::byte, 64>;

/// Returns the SHA-256 of the key's SubjectPublicKeyInfo in hexadecimal digits, as
/// `openssl pkey -pubin -in KEY.pem -outform DER | openssl dgst -sha256` prints it.
std::string fingerprint(const PublicKey& key);

/// Reads a file that `openssl pkey -pubout` wrote. Throws Error(bad_input) for a file without an Ed25519 public key,
/// and Error(no_permission) or Error(io) when the file cannot be read.
PublicKey read_public_key(const std::filesystem::path& path);

/// Reads the public half of every Ed25519 key in a file: PEM blocks or DER of public keys, certificates and unencrypted
/// private keys. Skips keys of other types. Throws as read_public_key does, also when one part of the file is no key.
std::vector<PublicKey> read_every_key(const std::filesystem::path& path);

bool verifies(const PublicKey& key, std::span<const std::byte> message, const Signature& signature);

class PrivateKey {
 public:
  /// Reads an unencrypted file that `openssl genpkey -algorithm ed25519` wrote. Throws as read_public_key does.
  static PrivateKey read(const std::filesystem::path& path);
  [[nodiscard]] const PublicKey& public_key() const noexcept { return public_key_; }
  [[nodiscard]] Signature sign(std::span<const std::byte> message) const;  // throws Error(io) when OpenSSL fails

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const noexcept;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  PrivateKey(Key key, const PublicKey& public_key) : key_(std::move(key)), public_key_(public_key) {}

  Key key_;
  PublicKey public_key_;
};

}  // namespace kiln::store
