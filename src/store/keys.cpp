#include "store/keys.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
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
constexpr std::size_t largest_pem = 16384;       // bytes; an Ed25519 key takes 120, text may precede it
constexpr std::size_t largest_bundle = 1 << 20;  // of revoked keys

/// Overwritten at its end, since it may hold a private key.
struct PemText {
  std::vector<char> bytes;
  std::size_t size = 0;
  explicit PemText(std::size_t most) : bytes(most + 1) {}
  ~PemText() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  PemText(const PemText&) = delete;
  PemText& operator=(const PemText&) = delete;
  [[nodiscard]] std::string_view view() const { return {bytes.data(), size}; }
  [[nodiscard]] bool holds(std::string_view part) const { return view().find(part) != std::string_view::npos; }
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
  if (text.size == text.bytes.size())
    refuse_key(path, fmt::format("is larger than any key: past {} bytes", text.size - 1));
}

struct FreeBio {
  void operator()(BIO* bio) const noexcept { BIO_free(bio); }
};
std::unique_ptr<BIO, FreeBio> open_text(std::string_view text) {
  std::unique_ptr<BIO, FreeBio> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
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

struct FreeKey {
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
};
using AnyKey = std::unique_ptr<EVP_PKEY, FreeKey>;

/// Returns the key of a certificate, or null.
EVP_PKEY* key_of_certificate(const unsigned char** at, long size) {
  const std::unique_ptr<X509, decltype(&X509_free)> found(d2i_X509_AUX(nullptr, at, size), X509_free);
  return found ? X509_get_pubkey(found.get()) : nullptr;
}

/// Returns the key that all of `bytes` is in DER: a public one, a certificate's, or that of an unencrypted private one.
/// Null if they are none.
AnyKey key_in_der(const unsigned char* bytes, std::size_t size) {
  const auto length = static_cast<long>(size);
  for (const auto parse :
       {+[](const unsigned char**at, long most) { return d2i_PUBKEY(nullptr, at, most); }, &key_of_certificate,
        +[](const unsigned char**at, long most) { return d2i_AutoPrivateKey(nullptr, at, most); }}) {
    const unsigned char* at = bytes;
    AnyKey key(parse(&at, length));
    if (key && at == bytes + size) return key;
  }
  return nullptr;
}

/// Reads the next block of PEM into `key`, which stays null for a block that holds none. Returns false at the end.
bool read_block(BIO* bio, AnyKey& key, std::string& kind) {
  char *name = nullptr, *header = nullptr;
  unsigned char* bytes = nullptr;
  long size = 0;
  if (PEM_read_bio(bio, &name, &header, &bytes, &size) != 1) return false;
  kind = name;
  key = key_in_der(bytes, static_cast<std::size_t>(size));
  OPENSSL_free(name);
  OPENSSL_free(header);
  OPENSSL_clear_free(bytes, static_cast<std::size_t>(size));
  return true;
}

std::int64_t count_of(std::string_view text, std::string_view part) {
  std::int64_t count = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
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
  PemText text(largest_pem);
  read_pem(path, text);
  const AnyKey key(PEM_read_bio_PUBKEY(open_text(text.view()).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (!key) refuse_key(path, fmt::format("holds no public key in PEM; {}", how_to_publish));
  return raw_public_key(path, key.get(), how_to_make);
}

std::vector<PublicKey> read_every_key(const fs::path& path) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf", begin = "-----BEGIN ";
  PemText text(largest_bundle);
  read_pem(path, text);
  std::string_view rest = text.view();
  if (rest.starts_with(byte_order_mark)) rest.remove_prefix(byte_order_mark.size());
  std::vector<PublicKey> keys;
  const auto add = [&](const AnyKey& key, std::string_view what) {
    ERR_clear_error();
    if (!key) refuse_key(path, fmt::format("holds {}, of which no public key can be read; {}", what, how_to_publish));
    if (EVP_PKEY_is_a(key.get(), "ED25519") == 1) keys.push_back(raw_public_key(path, key.get(), how_to_make));
  };
  const std::int64_t blocks = count_of(rest, begin);
  if (blocks == 0)
    add(key_in_der(reinterpret_cast<const unsigned char*>(rest.data()), rest.size()), "neither PEM nor DER");
  const auto bio = open_text(rest);
  for (std::int64_t block = 0; block < blocks; ++block) {
    AnyKey key;
    std::string kind = "a block of PEM";
    read_block(bio.get(), key, kind);
    add(key, kind);
  }
  return keys;
}

bool verifies(const PublicKey& key, std::span<const std::byte> message, const Signature& signature) {
  const AnyKey pkey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, as_octets(key), key.size()));
  const auto context = new_context();
  const bool good =
      pkey && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, pkey.get()) == 1 &&
      EVP_DigestVerify(context.get(), as_octets(signature), signature.size(), as_octets(message), message.size()) == 1;
  ERR_clear_error();
  return good;
}

PrivateKey PrivateKey::read(const fs::path& path) {
  PemText text(largest_pem);
  read_pem(path, text);
  Key key(PEM_read_bio_PrivateKey(open_text(text.view()).get(), nullptr, no_passphrase, nullptr));
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
