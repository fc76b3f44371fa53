// Key files made with the openssl command, as users make them.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "support.hpp"

namespace kiln::store {

struct KeyFiles {
  std::filesystem::path secret, open;  // the private key, and its public half
};

using KeyHandle = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

inline KeyHandle new_key(const char* type = "ED25519") {
  return {EVP_PKEY_Q_keygen(nullptr, nullptr, type), EVP_PKEY_free};
}

inline void write_secret(const std::filesystem::path& path, EVP_PKEY* key, const char* passphrase = nullptr) {
  FILE* file = fopen(path.c_str(), "w");
  REQUIRE(file != nullptr);
  const auto length = passphrase != nullptr ? static_cast<int>(std::char_traits<char>::length(passphrase)) : 0;
  CHECK(PEM_write_PKCS8PrivateKey(file, key, passphrase != nullptr ? EVP_aes_256_cbc() : nullptr, passphrase, length,
                                  nullptr, nullptr) == 1);
  fclose(file);
  chmod(path.c_str(), 0600);
}

inline void write_open(const std::filesystem::path& path, EVP_PKEY* key) {
  FILE* file = fopen(path.c_str(), "w");
  REQUIRE(file != nullptr);
  CHECK(PEM_write_PUBKEY(file, key) == 1);
  fclose(file);
  chmod(path.c_str(), 0644);
}

/// A new key pair: FOLDER/NAME.secret beside the folder of trusted keys FOLDER/keys, and FOLDER/keys/NAME.pem.
inline KeyFiles make_keys(const Folder& folder, const std::string& name) {
  const KeyFiles files{folder / (name + ".secret"), folder / ("keys/" + name + ".pem")};
  std::filesystem::create_directories(folder / "keys");
  std::filesystem::permissions(folder / "keys", std::filesystem::perms(0755));
  const KeyHandle key = new_key();
  write_secret(files.secret, key.get());
  write_open(files.open, key.get());
  return files;
}

}  // namespace kiln::store
