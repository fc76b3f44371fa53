// Revocations as people lay them down, and such as cannot be read.
#include <openssl/x509.h>

#include <vector>

#include "faults/store/samples.hpp"
#include "faults/store/users.hpp"
#include "faults/tally.hpp"
#include "store/key_files.hpp"
#include "store/signing.hpp"
#include "store/trust.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

using Bytes = std::string;

template <class Write>
Bytes written(Write&& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> to(BIO_new(BIO_s_mem()), BIO_free);
  REQUIRE(write(to.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(to.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::unique_ptr<X509, decltype(&X509_free)> certificate_of(EVP_PKEY* key) {
  std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 60);
  X509_set_pubkey(made.get(), key);
  REQUIRE(X509_sign(made.get(), key, nullptr) > 0);
  return made;
}

/// A folder of two trusted keys, and the forms that the first of them takes.
struct Keys {
  Folder folder;
  KeyHandle key = new_key(), another = new_key();
  Bytes pem = written([&](BIO* to) { return PEM_write_bio_PUBKEY(to, key.get()); });
  Bytes other_pem = written([&](BIO* to) { return PEM_write_bio_PUBKEY(to, another.get()); });
  Bytes secret =
      written([&](BIO* to) { return PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  Bytes encrypted = written([&](BIO* to) {
    return PEM_write_bio_PKCS8PrivateKey(to, key.get(), EVP_aes_256_cbc(), "word", 4, nullptr, nullptr);
  });
  Bytes certificate = written([&](BIO* to) { return PEM_write_bio_X509(to, certificate_of(key.get()).get()); });
  Bytes der = written([&](BIO* to) { return i2d_PUBKEY_bio(to, key.get()); });
  Bytes secret_der =
      written([&](BIO* to) { return i2d_PKCS8PrivateKey_bio(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  Bytes certificate_der = written([&](BIO* to) { return i2d_X509_bio(to, certificate_of(key.get()).get()); });

  Keys() {
    fs::create_directories(revoked());
    fs::permissions(folder / "keys", fs::perms(0755));
    write_open(folder / "keys/good.pem", key.get());
    write_open(folder / "keys/other.pem", another.get());
  }
  [[nodiscard]] fs::path revoked(const std::string& name = "") const { return folder / ("keys/revoked/" + name); }
  void clear() const {
    fs::remove_all(folder / "keys/revoked");
    fs::create_directories(revoked());
  }
  [[nodiscard]] PublicKey raw(bool first = true) const {
    return read_public_key(folder / (first ? "keys/good.pem" : "keys/other.pem"));
  }
};

KeyRing ring_of(const Keys& keys, std::vector<std::string>& warnings) {
  const fs::path folders[] = {keys.folder / "keys"};
  return KeyRing::read(folders, warnings);
}

void check_revoked(const Keys& keys, const std::string& name) {
  CAPTURE(name);
  std::vector<std::string> warnings;
  const KeyRing ring = ring_of(keys, warnings);
  for (const std::string& each : warnings) MESSAGE(each);
  CHECK(ring.unread_revocations().empty());
  CHECK(ring.revoked(keys.raw()) != nullptr);
  CHECK(ring.trusted(keys.raw()) == nullptr);
  CHECK(ring.trusted(keys.raw(false)) != nullptr);
}

void check_nothing_trusted(const Keys& keys, const std::string& name) {
  CAPTURE(name);
  std::vector<std::string> warnings;
  const KeyRing ring = ring_of(keys, warnings);
  REQUIRE(warnings.size() == 1);
  CAPTURE(warnings[0]);
  CHECK(contains(warnings[0], "the keys of '" + (keys.folder / "keys").string() + "' are not trusted"));
  CHECK(contains(warnings[0], name));
  CHECK(ring.unread_revocations() == warnings);
  CHECK(ring.trusted(keys.raw()) == nullptr);
  CHECK(ring.trusted(keys.raw(false)) == nullptr);
}

TEST_CASE("fault 85: a key is revoked by whatever file holds it, whatever its name and form") {
  const Keys keys;
  const std::pair<const char*, Bytes> files[] = {
      {"good", keys.pem},
      {"good.pub", keys.pem},
      {"GOOD.PEM", keys.pem},
      {"good.pem.2026-11-26", keys.pem},
      {"good.pem~", keys.pem},
      {".good.pem", keys.pem},
      {"2026/november/good.pem", keys.pem},
      {"folder.pem/good", keys.pem},
      {"good.der", keys.der},
      {"good.crt", keys.certificate},
      {"good.cer", keys.certificate_der},
      {"good.key", keys.secret},
      {"good.p8", keys.secret_der},
      {"bundle.pem", "# two keys\n" + written([](BIO* to) { return PEM_write_bio_PUBKEY(to, new_key().get()); }) +
                         "and\n" + keys.pem},
      {"both.pem", keys.certificate + keys.secret},
      {"exchange_key_before.pem",
       written([](BIO* to) { return PEM_write_bio_PUBKEY(to, new_key("X25519").get()); }) + keys.pem},
      {"marked.pem", "\xef\xbb\xbf" + keys.pem},
  };
  for (const auto& [name, bytes] : files) {
    keys.clear();
    fs::create_directories(keys.revoked(name).parent_path());
    write_bytes(keys.revoked(name), bytes);
    check_revoked(keys, name);
  }
  faults::tally(85, std::size(files), "forms of a revocation");
}

TEST_CASE(
    "fault 85: revocations behind links, in circles of links, in a file in the folder's place, and 1,030 of them") {
  const Keys keys;
  write_bytes(keys.folder / "elsewhere", keys.pem);
  fs::create_symlink(keys.folder / "elsewhere", keys.revoked("link"));
  fs::create_directory_symlink(".", keys.revoked("again"));
  fs::create_directory_symlink("..", keys.revoked("up"));
  {
    std::vector<std::string> warnings;
    const KeyRing ring = ring_of(keys, warnings);  // by the link `up` each of the trusted keys is below it
    CHECK(ring.revoked(keys.raw()) != nullptr);
    CHECK(ring.revoked(keys.raw(false)) != nullptr);
    CHECK(warnings.empty());
  }
  fs::remove_all(keys.folder / "keys/revoked");
  write_bytes(keys.folder / "keys/revoked", keys.pem);
  check_revoked(keys, "a file");
  fs::remove(keys.folder / "keys/revoked");
  keys.clear();
  const Bytes another = written([](BIO* to) { return PEM_write_bio_PUBKEY(to, new_key().get()); });
  constexpr int many = 1030;
  for (int at = 0; at < many; ++at) write_bytes(keys.revoked(std::to_string(10000 + at) + ".pem"), another);
  write_bytes(keys.revoked("last.pem"), keys.pem);
  check_revoked(keys, "many");
  faults::tally(85, 5, "places of a revocation");
}

TEST_CASE("fault 85: where a revocation cannot be read, no key of its folder is trusted") {
  const Keys keys;
  const std::pair<const char*, Bytes> files[] = {
      {"empty.pem", ""},
      {"README", "these keys are gone"},
      {"cut.pem", keys.pem.substr(0, keys.pem.size() / 2)},
      {"cut_second.pem", keys.other_pem + keys.pem.substr(0, keys.pem.size() - 8)},
      {"changed.pem", Bytes(keys.pem).replace(40, 4, "!!!!")},
      {"indented.pem", "  " + keys.pem},
      {"encrypted.pem", keys.encrypted},
      {"longer.der", keys.der + "x"},
      {"request.pem", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"},
      {"large.pem", Bytes(2 << 20, '\n') + keys.pem},
      {"wide.pem",
       [&] {
         Bytes wide;
         for (const char each : keys.pem) wide.append(1, each).push_back('\0');
         return wide;
       }()},
  };
  for (const auto& [name, bytes] : files) {
    keys.clear();
    write_bytes(keys.revoked("sound.pem"), keys.other_pem);
    write_bytes(keys.revoked(name), bytes);
    check_nothing_trusted(keys, name);
  }
  keys.clear();
  fs::create_symlink("nowhere", keys.revoked("dangling.pem"));
  check_nothing_trusted(keys, "dangling.pem");
  keys.clear();
  REQUIRE(mkfifo(keys.revoked("pipe.pem").c_str(), 0600) == 0);
  check_nothing_trusted(keys, "pipe.pem");
  fs::remove_all(keys.folder / "keys/revoked");
  fs::create_symlink("nowhere", keys.folder / "keys/revoked");
  check_nothing_trusted(keys, "revoked");
  faults::tally(85, static_cast<std::int64_t>(std::size(files)) + 3, "revocations that cannot be read");
}

TEST_CASE("fault 85: a revocation, or a folder of them, that this user may not read") {
  const Keys keys;
  write_bytes(keys.revoked("mine.pem"), keys.other_pem);
  fs::permissions(keys.folder.path(), fs::perms(0755));
  for (const fs::path& each : {keys.revoked("mine.pem"), keys.folder / "keys/revoked", keys.folder / "keys"}) {
    CAPTURE(each.string());
    const auto before = fs::status(each).permissions();
    fs::permissions(each, fs::perms::none);
    CHECK(as_nobody([&] {
      std::vector<std::string> warnings;
      const KeyRing ring = ring_of(keys, warnings);
      return ring.unread_revocations().size() == 1 && contains(warnings[0], "cannot be read");
    }));
    fs::permissions(each, before);
  }
  faults::tally(85, 3, "revocations that this user may not read");
}

TEST_CASE("fault 85: a file signed by a key whose revocation cannot be read supplies no machine code") {
  const Keys keys;
  write_secret(keys.folder / "secret.pem", keys.key.get());
  const auto path = sample_file(keys.folder / "signed.kiln");
  sign(path, PrivateKey::read(keys.folder / "secret.pem"));
  const auto judged = [&] {
    std::vector<std::string> warnings;
    return judge_code(*File::open(path, Access::read_only), {TrustPolicy::signed_files, ring_of(keys, warnings)});
  };
  CHECK(judged().trusted);
  write_bytes(keys.revoked("good"), keys.encrypted);
  CHECK(!judged().trusted);
  write_bytes(keys.revoked("good"), keys.pem);
  CHECK(contains(judged().why, "is revoked"));
  faults::tally(85, 3, "files signed by keys that may be revoked");
}

}  // namespace
}  // namespace kiln::store
