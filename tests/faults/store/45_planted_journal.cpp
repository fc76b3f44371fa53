// A journal that a stranger put beside a file: SQLite would play it back into the file.
#include <csignal>

#include "faults/skip.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/key_files.hpp"
#include "store/layers.hpp"
#include "store/signing.hpp"
#include "store/verify.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr uid_t stranger = 65534;

/// A file, and beside it the journal of another one, whose pages are put into the file by whoever plays it back.
struct Victim {
  explicit Victim(const fs::path& folder) : file(sample_file(folder / "mine.kiln")) {
    const Folder elsewhere;
    const auto evil = sample_file(elsewhere / "evil.kiln", 1);
    const pid_t child = in_child([&] {
      sqlite3* database = nullptr;
      sqlite3_open(evil.c_str(), &database);
      sqlite3_exec(database, "PRAGMA cache_size = 1; BEGIN; UPDATE image SET frame = zeroblob(20000);", nullptr,
                   nullptr, nullptr);
      kill(getpid(), SIGKILL);
      return false;
    });
    REQUIRE(exit_status(child) == 128 + SIGKILL);
    fs::copy_file(evil.native() + "-journal", journal());
  }
  [[nodiscard]] fs::path journal() const { return file.native() + "-journal"; }
  [[nodiscard]] std::string bytes() const { return bytes_of(file) + bytes_of(journal()); }
  fs::path file;
};

struct Writing {
  const char* name;
  std::function<void(const fs::path&)> work;
};

PruneReport prune_all(const fs::path& file) {
  PruneRule rule;
  rule.record = [](const Record&) { return true; };
  return File::open(file, Access::read_write)->prune(rule);
}

std::vector<Writing> every_writing(const Folder& keys) {
  const auto secret = make_keys(keys, "mine").secret;
  return {{"sign", [=](const fs::path& file) { sign(file, PrivateKey::read(secret)); }},
          {"prune", [](const fs::path& file) { prune_all(file); }},
          {"compact", [](const fs::path& file) { File::open(file, Access::read_write)->compact(); }}};
}

void check_not_written(const Victim& victim, const std::string& why) {
  const Folder keys;
  const auto before = victim.bytes();
  for (const Writing& each : every_writing(keys)) {
    const auto said = refusal([&] { each.work(victim.file); });
    CAPTURE(each.name);
    CAPTURE(said);
    CHECK(contains(said, "no_permission: "));
    CHECK(contains(said, why));
    CHECK(victim.bytes() == before);
  }
  faults::tally(45, 3, "writings beside a journal that is not to be believed");
}

}  // namespace

TEST_CASE("fault 45: a file in a folder that others may write is not written to, with or without a journal there") {
  const Folder folder;
  const Victim victim(folder.path());
  for (const unsigned mode : {01777U, 0770U, 0707U}) {
    CAPTURE(mode);
    REQUIRE(chmod(folder.path().c_str(), mode) == 0);
    check_not_written(victim, "its folder '" + folder.path().string() + "' can be written by others");
  }
  REQUIRE(chmod(folder.path().c_str(), 01777) == 0);
  CHECK(contains(refusal([&] { File::open(victim.file, Access::read_write); }), "use a folder of your own"));
  CHECK(!refusal([&] { File::open(folder / "new.kiln", Access::read_write); }).empty());
  CHECK(!fs::exists(folder / "new.kiln"));
  fs::remove(victim.journal());
  check_not_written(victim, "can be written by others");
  REQUIRE(chmod(folder.path().c_str(), 0700) == 0);
  CHECK(File::open(victim.file, Access::read_write)->stats().records == 3);
}

TEST_CASE(
    "fault 45: a journal of another user, a link or a writable one stops who writes, in whatever folder it lies") {
  const Folder folder;
  const Victim victim(folder.path());
  REQUIRE(chmod(victim.journal().c_str(), 0666) == 0);
  check_not_written(victim, "its journal '" + victim.journal().string() + "' can be written by others");
  REQUIRE(chmod(victim.journal().c_str(), 0600) == 0);
  const Layers usual({.overlay = folder / "another.kiln"});
  CHECK(usual.layers()[0].refused.empty());
  if (geteuid() == 0) {
    REQUIRE(chown(victim.journal().c_str(), stranger, stranger) == 0);
    check_not_written(victim, "belongs to user 65534");
    const auto before = victim.bytes();
    CHECK(contains(Layers({.overlay = victim.file}).layers()[0].refused, "its journal"));
    CHECK(victim.bytes() == before);
  }
  fs::rename(victim.journal(), folder / "journal");
  fs::create_symlink(folder / "journal", victim.journal());
  check_not_written(victim, "is not a regular file");
}

TEST_CASE("fault 45: the folder and the journal of the file's own owner are as good as the file") {
  if (geteuid() != 0) return faults::skip("only root can give a file away");
  const Folder folder;
  const auto file = sample_file(folder / "theirs.kiln");
  for (const fs::path& each : {folder.path(), file}) REQUIRE(chown(each.c_str(), stranger, stranger) == 0);
  CHECK(prune_all(file).records == 3);
  CHECK(contains(Layers({.overlay = file}).layers()[0].refused, "belongs to user 65534"));
  REQUIRE(chown(folder.path().c_str(), 0, 0) == 0);
}

TEST_CASE("fault 45: who reads never plays a journal back, and is told what it is") {
  const Folder folder;
  const Victim victim(folder.path());
  const auto before = victim.bytes();
  const auto reads = {std::function<void()>([&] { File::open(victim.file, Access::read_only); }),
                      std::function<void()>([&] { verify(victim.file); }),
                      std::function<void()>([&] { signature_states(victim.file, {}); })};
  for (const auto& read : reads) {
    const auto said = refusal(read);
    CAPTURE(said);
    CHECK(contains(said, "a journal lies beside it"));
    CHECK(contains(said, "kiln cache compact"));
    CHECK(victim.bytes() == before);
  }
  faults::tally(45, 3, "readings beside a journal");
}

TEST_CASE("fault 45: a write-ahead log beside a file is refused, for reading and for writing") {
  const Folder folder;
  const auto mine = sample_file(folder / "mine.kiln");
  const auto evil = sample_file(folder / "evil.kiln");
  const pid_t child = in_child([&] {
    sqlite3* database = nullptr;
    sqlite3_open(evil.c_str(), &database);
    sqlite3_exec(database, "PRAGMA journal_mode = WAL; DELETE FROM record WHERE key = 'key1'", nullptr, nullptr,
                 nullptr);
    kill(getpid(), SIGKILL);
    return false;
  });
  REQUIRE(exit_status(child) == 128 + SIGKILL);
  fs::copy_file(evil.native() + "-wal", mine.native() + "-wal");
  check_refused(mine, "mine.kiln-wal' lies beside it");
  CHECK(!fs::exists(mine.native() + "-shm"));
  faults::tally(45, 2, "openings beside a write-ahead log");
}

}  // namespace kiln::store
