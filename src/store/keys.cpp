#include "store/keys.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include "kiln/error.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view how_to_make = "make one with: openssl genpkey -algorithm ed25519 -out KEY.pem";
constexpr std::string_view how_to_publish =
    "take it from the private key with: openssl pkey -in KEY.pem -pubout -out NAME.pem";
constexpr std::size_t largest_pem = 16384;  // bytes; an Ed25519 key takes 120, text may precede it

/// Overwritten at its end, since it may hold a private key.
struct PemText {
  std::array<char, largest_pem + 1> bytes{};
  std::size_t size = 0;
  PemText() = default;
  ~PemText() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  PemText(const PemText&) = delete;
  PemText& operator=(const PemText&) = delete;
  [[nodiscard]] bool holds(std::string_view part) const {
    return std::string_view(bytes.data(), size).find(part) != std::string_view::npos;
  }
};

[[noreturn]] void cannot_read(const fs::path& path, int why) {
  throw Error(why == EACCES || why == EPERM ? ErrorKind::no_permission : ErrorKind::io,
              fmt::format("the key '{}' cannot be read: {}", path.string(), std::strerror(why)));
}

[[noreturn]] void refuse_key(const fs::path& path, std::string_view found) {
  throw Error(ErrorKind::bad_input, fmt::format("the key '{}' {}", path.string(), found));
}

void read_pem(const fs::path& path, PemText& text) {
  // Non-blocking, so that the open of a pipe returns.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) cannot_read(path, errno);
  struct stat status {};
  ssize_t got = fstat(descriptor, &status);
  const bool regular = got == 0 && S_ISREG(status.st_mode);
  while (regular && text.size < text.bytes.size() &&
         (got = read(descriptor, text.bytes.data() + text.size, text.bytes.size() - text.size)) > 0)
    text.size += static_cast<std::size_t>(got);
  const int why = errno;
  close(descriptor);
  if (got < 0) cannot_read(path, why);
  if (!regular) refuse_key(path, "is not a regular file");
  if (text.size > largest_pem) refuse_key(path, fmt::format("is larger than any key: past {} bytes", largest_pem));
}

struct FreeBio {
  void operator()(BIO* bio) const noexcept { BIO_free(bio); }
};
std::unique_ptr<BIO, FreeBio> open_text(const PemText& text) {
  std::unique_ptr<BIO, FreeBio> bio(BIO_new_mem_buf(text.bytes.data(), static_cast<int>(text.size)));
  if (!bio) throw std::bad_alloc();
  return bio;
}

int no_passphrase(char*, int, int, void*) { return -1; }

PublicKey raw_public_key(const fs::path& path, const EVP_PKEY* key, std::string_view how) {
  if (EVP_PKEY_is_a(key, "ED25519") != 1) {
    const char* type = EVP_PKEY_get0_type_name(key);
    refuse_key(path,
               fmt::format("is of type {} where Ed25519 is expected; {}", type != nullptr ? type : "unknown", how));
  }
  PublicKey raw{};
  std::size_t size = raw.size();
  if (EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()), &size) != 1 || size != raw.size())
    refuse_key(path, fmt::format("gives no public key of 32 bytes; {}", how));
  return raw;
}

const unsigned char* as_octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};
std::unique_ptr<EVP_MD_CTX, FreeContext> new_context() {
  std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  if (!context) throw std::bad_alloc();
  return context;
}

}  // namespace

void PrivateKey::Free::operator()(evp_pkey_st* key) const noexcept { EVP_PKEY_free(key); }

std::string fingerprint(const PublicKey& key) {
  // The constant part of Ed25519's SubjectPublicKeyInfo (RFC 8410).
  constexpr std::array<unsigned char, 12> prefix = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                                    0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
  std::array<unsigned char, prefix.size() + 32> info{};
  std::ranges::copy(prefix, info.begin());
  std::ranges::copy(std::span(as_octets(key), key.size()), info.begin() + prefix.size());
  std::array<unsigned char, 32> digest{};
  if (EVP_Digest(info.data(), info.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

PublicKey read_public_key(const fs::path& path) {
  PemText text;
  read_pem(path, text);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PUBKEY(open_text(text).get(), nullptr, no_passphrase, nullptr), EVP_PKEY_free);
  ERR_clear_error();
  if (!key) refuse_key(path, fmt::format("holds no public key in PEM; {}", how_to_publish));
  return raw_public_key(path, key.get(), how_to_make);
}

bool verifies(const PublicKey& key, std::span<const std::byte> message, const Signature& signature) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pkey(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, as_octets(key), key.size()), EVP_PKEY_free);
  const auto context = new_context();
  const bool good =
      pkey && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, pkey.get()) == 1 &&
      EVP_DigestVerify(context.get(), as_octets(signature), signature.size(), as_octets(message), message.size()) == 1;
  ERR_clear_error();
  return good;
}

PrivateKey PrivateKey::read(const fs::path& path) {
  PemText text;
  read_pem(path, text);
  Key key(PEM_read_bio_PrivateKey(open_text(text).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (!key && text.holds("ENCRYPTED"))
    refuse_key(path,
               "is encrypted and no passphrase is asked for; decrypt it with: openssl pkey -in KEY.pem -out PLAIN.pem");
  if (!key && text.holds("PUBLIC KEY"))
    refuse_key(path, fmt::format("is a public key, which cannot sign; name the private one, or {}", how_to_make));
  if (!key) refuse_key(path, fmt::format("holds no private key in PEM; {}", how_to_make));
  const PublicKey public_key = raw_public_key(path, key.get(), how_to_make);
  return {std::move(key), public_key};
}

Signature PrivateKey::sign(std::span<const std::byte> message) const {
  const auto context = new_context();
  Signature signature{};
  std::size_t size = signature.size();
  if (EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, as_octets(message),
                     message.size()) != 1 ||
      size != signature.size())
    throw Error(ErrorKind::io, "OpenSSL could not sign with this key; is its library complete?");
  return signature;
}

}  // namespace kiln::store
