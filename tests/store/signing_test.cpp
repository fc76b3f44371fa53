// Keys, signatures, and the folders of trusted keys.
#include "store/signing.hpp"

#include <stdlib.h>

#include "key_files.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

fs::path unsealed_file(const Folder& folder, const std::string& name = "file.kiln") {
  const auto file = File::open(folder / name, Access::read_write);
  for (const std::string key : {"b", "a"}) {
    const auto cubin = sample_cubin(key);
    file->put(sample_record(key), &cubin);
  }
  return folder / name;
}

KeyRing ring_of(const fs::path& folder, std::vector<std::string>& warnings) {
  const std::vector<fs::path> folders = {folder};
  return KeyRing::read(folders, warnings);
}

TEST_CASE("signing seals what is not sealed, and the same key signs the same bytes") {
  const Folder folder;
  const auto path = unsealed_file(folder);
  const auto key = PrivateKey::read(make_keys(folder, "one").secret);
  const auto report = sign(path, key);
  CHECK(report.sealed);
  CHECK(report.records == 2);
  CHECK(report.candidates == 4);
  CHECK(report.cubins == 2);
  CHECK(report.fingerprint == fingerprint(key.public_key()));
  const auto signatures = [&] {
    std::vector<std::string> warnings;
    return signature_states(path, ring_of(folder / "keys", warnings));
  };
  REQUIRE(signatures().size() == 1);
  CHECK(signatures()[0].name == "one");
  CHECK((signatures()[0].valid && signatures()[0].trusted && !signatures()[0].revoked));
  CHECK(!sign(path, key).sealed);
  CHECK(signatures().size() == 1);
  sign(path, PrivateKey::read(make_keys(folder, "two").secret));
  CHECK(signatures().size() == 2);
  fs::create_directories(folder / "keys/revoked");
  fs::rename(folder / "keys/one.pem", folder / "keys/revoked/one.pem");
  int revoked = 0;
  for (const SignatureState& each : signatures()) {
    CHECK(each.valid);
    CHECK(each.trusted == (each.name == "two"));
    revoked += each.revoked ? 1 : 0;
  }
  CHECK(revoked == 1);
  CHECK(File::open(path, Access::read_only)->signers().size() == 2);
  File::open(path, Access::read_write)->put(sample_record("later"), nullptr);
  CHECK(signatures().empty());
}

TEST_CASE("the content decides the signature: neither the order of writing nor the file's history does") {
  const Folder folder;
  const auto key = PrivateKey::read(make_keys(folder, "one").secret);
  const auto first = unsealed_file(folder), second = folder / "second.kiln";
  export_file(*File::open(first, Access::read_only), second, {}, false);
  const auto signature_of = [&](const fs::path& path) {
    sign(path, key);
    const auto bytes = bytes_of(path);
    sqlite3* database = nullptr;
    sqlite3_stmt* statement = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
    REQUIRE(sqlite3_prepare_v2(database, "SELECT hex(signature) FROM signature", -1, &statement, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
    const std::string hex = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return hex;
  };
  CHECK(signature_of(first) == signature_of(second));
}

TEST_CASE("a file with a row that does not hold, or with a broken seal, is not signed and stays as it was") {
  const Folder folder;
  const auto path = unsealed_file(folder);
  const auto key = PrivateKey::read(make_keys(folder, "one").secret);
  const auto not_signed = [&](const char* change, std::string_view reason) {
    const auto good = bytes_of(path);
    run_sql(path, change);
    const auto before = bytes_of(path);
    const auto said = refusal([&] { sign(path, key); });
    CAPTURE(said);
    CHECK(contains(said, "bad_file: '" + path.string() + "' is not signed: "));
    CHECK(contains(said, reason));
    CHECK(bytes_of(path) == before);
    write_bytes(path, good);
  };
  not_signed("UPDATE record SET regime = 'hot' WHERE key = 'a'", "its record 'a' does not hold");
  not_signed("UPDATE choice SET config = 'threads=1' WHERE record = 2", "its record 'a' does not hold");
  not_signed("DELETE FROM choice WHERE record = 2 AND position = 1", "its record 'a' does not hold");
  not_signed("UPDATE candidate SET reason = 'x'", "its candidate 'a #0' does not hold");
  not_signed("UPDATE cubin SET label = 'x'", "does not hold: its digest");
  sign(path, key);
  not_signed("DELETE FROM candidate WHERE position = 1", "states 4 candidate rows and it holds 2");
  not_signed("UPDATE signature SET signature = zeroblob(64)", "is not one over its manifest");
  CHECK(contains(refusal([&] { sign(folder / "none.kiln", key); }), "none.kiln"));
  CHECK(!fs::exists(folder / "none.kiln"));
  fs::create_symlink(path, folder / "link.kiln");
  CHECK(contains(refusal([&] { sign(folder / "link.kiln", key); }), "no_permission"));
}

TEST_CASE("a row that is set aside takes the seal with it, so that the file stays readable") {
  const Folder folder;
  const auto path = unsealed_file(folder);
  sign(path, PrivateKey::read(make_keys(folder, "one").secret));
  run_sql(path, "UPDATE choice SET cost_ns = 1 WHERE record = 2");
  CHECK(!File::open(path, Access::read_write)->find_record("a"));
  const auto file = File::open(path, Access::read_only);
  CHECK(file->signers().empty());
  CHECK(file->find_record("b"));
}

TEST_CASE("a private key that cannot sign is refused with what to do") {
  const Folder folder;
  const auto said = [](const fs::path& path) { return refusal([&] { PrivateKey::read(path); }); };
  write_secret(folder / "encrypted.pem", new_key().get(), "secret");
  CHECK(contains(said(folder / "encrypted.pem"),
                 "is encrypted and no passphrase is asked for; decrypt it with: openssl pkey"));
  write_secret(folder / "x25519.pem", new_key("X25519").get());
  CHECK(contains(said(folder / "x25519.pem"),
                 "is of type X25519 where Ed25519 is expected; make one with: openssl genpkey"));
  const auto keys = make_keys(folder, "open");
  CHECK(contains(said(keys.open), "is a public key, which cannot sign"));
  write_bytes(folder / "text.pem", "no key");
  CHECK(contains(said(folder / "text.pem"),
                 "bad_input: the key '" + (folder / "text.pem").string() + "' holds no private key"));
  write_bytes(folder / "large.pem", bytes_of(keys.secret) + std::string(20000, '\n'));
  CHECK(contains(said(folder / "large.pem"), "is larger than any key"));
  CHECK(contains(said(folder / "none.pem"), "io: the key '" + (folder / "none.pem").string() + "' cannot be read"));
  CHECK(contains(said(folder.path()), "is not a regular file"));
  REQUIRE(mkfifo((folder / "pipe.pem").c_str(), 0600) == 0);
  CHECK(contains(said(folder / "pipe.pem"), "is not a regular file"));
}

TEST_CASE("a key that others could have put there, or that is none, is left out with a warning, and the rest count") {
  const Folder folder;
  const auto good = make_keys(folder, "good");
  const auto key = read_public_key(good.open);
  const auto read = [&](std::string_view reason) {
    std::vector<std::string> warnings;
    const KeyRing ring = ring_of(folder / "keys", warnings);
    REQUIRE(warnings.size() == (reason.empty() ? 0 : 1));
    if (!reason.empty()) CAPTURE(warnings[0]);
    CHECK((reason.empty() || contains(warnings[0], reason)));
    return ring.trusted(key) != nullptr;
  };
  CHECK(read(""));
  const auto with_file = [&](const std::string& text, std::string_view reason) {
    write_bytes(folder / "keys/odd.pem", text);
    CHECK(read(reason));
    fs::remove(folder / "keys/odd.pem");
  };
  with_file("", "holds no public key in PEM");
  with_file(bytes_of(good.secret), "holds no public key in PEM; take it from the private key with: openssl pkey");
  with_file(std::string(20000, 'x'), "is larger than any key");
  write_open(folder / "keys/curve.pem", new_key("X25519").get());
  CHECK(read("is of type X25519"));
  fs::remove(folder / "keys/curve.pem");
  write_bytes(folder / "keys/README", "not a key");
  CHECK(read(""));
  // A container mounts secrets as links; the files that they lead to are checked.
  fs::create_directories(folder / "mounted");
  fs::rename(good.open, folder / "mounted/good.pem");
  fs::create_symlink(folder / "mounted/good.pem", good.open);
  CHECK(read(""));
  fs::permissions(folder / "mounted", fs::perms::others_write, fs::perm_options::add);
  CHECK(!read("can be written by others"));
  fs::permissions(folder / "mounted", fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(folder / "mounted/good.pem", fs::perms::group_write, fs::perm_options::add);
  CHECK(!read("the key '" + good.open.string() + "' is not trusted: '" + (folder / "mounted/good.pem").string() +
              "' can be written by others"));
  fs::permissions(folder / "mounted/good.pem", fs::perms::group_write, fs::perm_options::remove);
  fs::permissions(folder / "keys", fs::perms::others_write, fs::perm_options::add);
  CHECK(!read("the keys of '" + (folder / "keys").string() + "' are not trusted: its folder"));
}

TEST_CASE("key folders are those that were chosen, else of KILN_TRUSTED_KEYS, else the user's") {
  const Folder folder;
  const std::vector<fs::path> chosen = {folder / "chosen"};
  CHECK(key_folders(chosen)[0] == chosen[0]);
  std::vector<std::string> warnings;
  KeyRing::read(chosen, warnings);
  CHECK((warnings.size() == 1 &&
         contains(warnings[0], "the folder of keys '" + chosen[0].string() + "' cannot be read")));
  CHECK(exit_status(in_child([&] {
          setenv("KILN_TRUSTED_KEYS", "/a::/b", 1);
          const auto named = key_folders({});
          if (named.size() < 2 || named[0] != "/a" || named[1] != "/b") return false;
          unsetenv("KILN_TRUSTED_KEYS");
          setenv("HOME", folder.path().c_str(), 1);
          setenv("XDG_CONFIG_HOME", "relative", 1);
          const auto system = key_folders({}).size();  // /etc/kiln/trusted, where there is one
          fs::create_directories(folder / ".config/kiln/trusted");
          if (key_folders({}).size() != system + 1 || key_folders({})[0] != folder / ".config/kiln/trusted")
            return false;
          setenv("XDG_CONFIG_HOME", (folder / "xdg").c_str(), 1);
          fs::create_directories(folder / "xdg/kiln/trusted");
          return key_folders({})[0] == folder / "xdg/kiln/trusted";
        })) == 0);
}

/// Builds the signed message as cache/README.md defines it, from sqlite3 and SHA-256 alone.
class Prose {
 public:
  explicit Prose(const fs::path& path) { REQUIRE(sqlite3_open(path.c_str(), &database_) == SQLITE_OK); }
  ~Prose() { sqlite3_close(database_); }
  Prose(const Prose&) = delete;
  Prose& operator=(const Prose&) = delete;

  std::vector<std::string> column(const std::string& sql) const {
    std::vector<std::string> values;
    sqlite3_stmt* statement = nullptr;
    REQUIRE(sqlite3_prepare_v2(database_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
      const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, 0));
      values.emplace_back(bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement, 0)));
    }
    sqlite3_finalize(statement);
    return values;
  }
  static std::string little_endian(std::uint64_t number) {
    std::string bytes;
    for (int each = 0; each < 8; ++each) bytes += static_cast<char>(number >> (8 * each));
    return bytes;
  }
  static std::string field(const std::string& bytes) { return little_endian(bytes.size()) + bytes; }
  static std::string sha256(const std::string& bytes) {
    std::string digest(32, '\0');
    EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, EVP_sha256(),
               nullptr);
    return digest;
  }
  std::string message() const {
    std::string fields =
        field("kiln signature 1") + field(little_endian(std::stoull(column("PRAGMA user_version")[0])));
    const std::pair<const char*, const char*> tables[] = {
        {"record", "SELECT digest FROM record ORDER BY key"},
        {"candidate", "SELECT c.digest FROM candidate c JOIN record r ON r.id = c.record ORDER BY r.key, c.position"},
        {"cubin", "SELECT digest FROM cubin ORDER BY key"}};
    for (const auto& [source, sql] : tables) {
      const auto digests = column(sql);
      std::string rows = field(source);
      for (const std::string& digest : digests) rows += field(digest);
      fields += field(source) + field(little_endian(digests.size())) + field(sha256(rows));
    }
    return sha256(fields);
  }

 private:
  sqlite3* database_ = nullptr;
};

TEST_CASE("the openssl command verifies a signature over the bytes that the format's description gives") {
  if (std::system("openssl version >/dev/null 2>&1") != 0) {
    MESSAGE("skipped: there is no openssl command");
    return;
  }
  const Folder folder;
  const auto path = unsealed_file(folder);
  const auto keys = make_keys(folder, "release");
  sign(path, PrivateKey::read(keys.secret));
  const Prose prose(path);
  const auto verified = [&](const std::string& message) {
    write_bytes(folder / "message", message);
    write_bytes(folder / "signature", prose.column("SELECT signature FROM signature")[0]);
    const std::string line = "openssl pkeyutl -verify -rawin -pubin -inkey '" + keys.open.string() + "' -in '" +
                             (folder / "message").string() + "' -sigfile '" + (folder / "signature").string() +
                             "' >/dev/null 2>&1";
    return std::system(line.c_str()) == 0;
  };
  CHECK(verified(prose.message()));
  CHECK(!verified(Prose::sha256("another message")));
  const std::string line = "openssl pkey -pubin -in '" + keys.open.string() +
                           "' -outform DER | openssl dgst -sha256 -r | cut -c1-64 > '" +
                           (folder / "fingerprint").string() + "'";
  REQUIRE(std::system(line.c_str()) == 0);
  CHECK(bytes_of(folder / "fingerprint") == fingerprint(read_public_key(keys.open)) + "\n");
}

}  // namespace
}  // namespace kiln::store
