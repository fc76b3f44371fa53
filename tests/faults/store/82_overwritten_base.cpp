// A file that another process overwrites in place, without a lock, while it is opened or read; and a dead writer's
// journal that brings another header.
#include <fcntl.h>

#include "faults/store/samples.hpp"
#include "faults/store/system_calls.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"
#include "store/made_up_format.hpp"
#include "store/opening.hpp"
#include "store/verify.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// Sets a big-endian field of SQLite's header.
std::string with_field(std::string bytes, std::size_t at, std::uint32_t value, std::size_t length = 4) {
  for (std::size_t each = 0; each < length; ++each)
    bytes[at + each] = static_cast<char>(value >> 8 * (length - 1 - each) & 0xff);
  return bytes;
}

constexpr std::size_t page_size_field = 16, journal_field = 18, change_counter = 24, schema_cookie = 40, encoding = 56,
                      user_version = 60, application = 68;

/// What may come to stand in a file's place. SQLite reads its cached pages again where the change counter differs.
std::vector<std::string> replacements(const std::string& whole) {
  const std::string changed = with_field(with_field(whole, change_counter, 1234567), schema_cookie, 7654);
  std::vector<std::string> all{"", changed.substr(0, 100), changed.substr(0, changed.size() / 2),
                               std::string(whole.size(), '\0'), changed + changed};
  for (const std::uint32_t version : {0U, 2U, 99U, 0xffffffffU})
    all.push_back(with_field(changed, user_version, version));
  all.push_back(with_field(changed, journal_field, 0x0202, 2));
  all.push_back(with_field(changed, page_size_field, 512, 2));
  all.push_back(with_field(changed, encoding, 2));
  all.push_back(with_field(changed, application, 7));
  return all;
}

/// Overwrites the file in place before the Nth call on files.
class Overwriting final : public faults::Watcher {
 public:
  Overwriting(int file, const std::string& bytes, int at) : file_(file), bytes_(bytes), left_(at) {}
  faults::Fate before(const faults::Attempt&) override {
    if (left_-- == 0) overwrite(file_, bytes_);
    return {};
  }
  [[nodiscard]] bool was_done() const noexcept { return left_ < 0; }
  static void overwrite(int file, const std::string& bytes) {
    CHECK(ftruncate(file, 0) == 0);
    CHECK(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int file_;
  const std::string& bytes_;
  int left_;
};

/// Runs `work` with each replacement before every `step`th call until one run makes fewer calls. Returns the number of
/// runs.
template <class Work>
std::int64_t overwrite_at_calls(const fs::path& path, int step, Work&& work) {
  const auto whole = bytes_of(path);
  // One descriptor, since closing one drops this process's locks on the file.
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  std::int64_t runs = 0;
  int first = 0;
  for (const std::string& bytes : replacements(whole)) {
    bool more = true;
    for (int at = first++ % step; more; at += step, ++runs) {
      Overwriting::overwrite(file, whole);
      Overwriting watcher(file, bytes, at);
      {
        const faults::Watch watch(watcher);
        try {
          work();
        } catch (const Error&) {  // refused is as good as read
        }
      }
      more = watcher.was_done();
      for (const char* suffix : {"-wal", "-shm"}) CHECK(!fs::exists(path.native() + suffix));
    }
  }
  close(file);
  return runs;
}

/// A journal that puts back the first page of `path` with one field changed. The journal's checksum does not cover it.
void plant_journal(const fs::path& path, std::size_t field, std::uint32_t value, std::size_t length) {
  const pid_t child = in_child([&] {
    sqlite3* database = nullptr;
    sqlite3_open(path.c_str(), &database);
    sqlite3_exec(database,
                 "PRAGMA cache_size = 1; BEGIN; PRAGMA user_version = 3; UPDATE image SET frame = zeroblob(20000);",
                 nullptr, nullptr, nullptr);
    kill(getpid(), SIGKILL);
    return false;
  });
  REQUIRE(exit_status(child) == 128 + SIGKILL);
  constexpr std::size_t sector = 512, page_number = 4;  // before the first page of a journal
  const auto journal = path.native() + "-journal";
  write_bytes(journal, with_field(bytes_of(journal), sector + page_number + field, value, length));
}

TEST_CASE("fault 82: a base that is overwritten at any call of an opening or a look-up never ends the process") {
  const Folder folder;
  const auto path = sample_file(folder / "base.kiln", 1);
  const auto runs = overwrite_at_calls(path, 1, [&] {
    const auto file = File::open(path, Access::read_only);
    if (const auto found = file->find_record(sample_key(0), true)) CHECK(same(*found, sample_record_at(0)));
    if (const auto found = file->find_cubin(digest_named("0"))) CHECK(same(*found, sample_cubin_at(0)));
  });
  CHECK(runs > 200);
  faults::tally(82, runs, "calls of an opening and a look-up before which a base was overwritten");
}

/// The records of sample_file(), put in the opposite order.
fs::path reversed_file(const fs::path& path, int records) {
  std::vector<Record> all;
  std::vector<CubinRow> cubins;
  while (records-- > 0) {
    all.push_back(sample_record_at(records));
    cubins.push_back(sample_cubin_at(records));
  }
  File::open(path, Access::read_write)->put_all(all, cubins);
  return path;
}

TEST_CASE("fault 82: a base that is overwritten under a running program is named once, with the remedy") {
  const Folder folder;
  constexpr int records = 40;
  const auto path = folder / "base.kiln", next = reversed_file(folder / "next.kiln", records);
  const std::string whole = bytes_of(sample_file(folder / "first.kiln", records));
  constexpr std::size_t page = 4096;  // with the first one the same, SQLite keeps the pages that it has
  std::string other = whole.substr(0, page) + bytes_of(next).substr(page);
  other.resize(whole.size());
  const auto look_up_all = [](Layers& layers) {
    for (int at = 0; at < records; ++at) {
      if (const auto found = layers.find_record(sample_key(at))) CHECK(found->value.key == sample_key(at));
      (void)layers.find_cubin(digest_named(std::to_string(at)));
    }
  };
  for (const std::string& bytes : {other, whole.substr(0, whole.size() / 2), std::string()}) {
    write_bytes(path, whole);
    Layers layers({.overlay = "", .bases = {path}});
    CHECK(layers.find_record(sample_key(0)));
    CHECK(layers.warnings().empty());
    write_bytes(path, bytes);
    for (int again = 0; again < 2; ++again) look_up_all(layers);
    const auto said = layers.warnings();
    REQUIRE(said.size() == 1);
    CHECK(contains(said.front(), "'" + path.string() + "' was overwritten in place"));
    CHECK(contains(said.front(), "replace such a file by rename"));
  }
  write_bytes(path, whole);
  Layers layers({.overlay = "", .bases = {path}});
  fs::rename(next, path);
  look_up_all(layers);
  CHECK(layers.find_record(sample_key(0)));
  CHECK(layers.warnings().empty());
  faults::tally(82, 4, "bases overwritten or replaced under a running program");
}

TEST_CASE("fault 82: a file that is migrated while it is overwritten is refused or read") {
  const Folder folder;
  const auto path = sample_file(folder / "old.kiln", 1);
  std::int64_t runs = 0;
  for (const Access access : {Access::read_only, Access::read_write})
    runs += overwrite_at_calls(path, 3, [&] { open_existing(path, access, nullptr, made_up_format()); });
  faults::tally(82, runs, "calls of a migration before which its file was overwritten");
}

TEST_CASE("fault 82: a verification of a file that is overwritten ends with an answer") {
  const Folder folder;
  const auto path = sample_file(folder / "base.kiln", 1);
  const auto whole = bytes_of(path);
  const auto runs = overwrite_at_calls(path, 5, [&] { (void)verify(path); });
  write_bytes(path, whole);
  CHECK(verify(path).is_sound());
  faults::tally(82, runs, "calls of a verification before which its file was overwritten");
}

TEST_CASE("fault 82: a journal that brings another header is refused, and the caller lives") {
  struct Case {
    std::size_t field;
    std::uint32_t value;
    std::size_t length;
    const char* words;
  };
  const Case cases[] = {{user_version, 0, 4, "its format version is 0"},
                        {user_version, 1, 4, "reads none before"},
                        {user_version, 99, 4, "use a newer Kiln"},
                        {application, 7, 4, "of another program"},
                        {journal_field, 0x0202, 2, ""},
                        {encoding, 2, 4, "is damaged"}};
  for (const Case& each : cases) {
    const Folder folder;
    const auto path = sample_file(folder / "overlay.kiln", 3, 20000);
    plant_journal(path, each.field, each.value, each.length);
    const auto said = refusal([&] { File::open(path, Access::read_write); });
    CAPTURE(said);
    CHECK(!said.empty());
    CHECK(contains(said, each.words));
    Layers layers({.overlay = path});
    layers.put_all({{sample_record("after")}}, {});
    CHECK(layers.find_record("after"));
    CHECK(layers.warnings().size() == 1);
  }
  faults::tally(82, std::size(cases), "journals that bring another header");
}

TEST_CASE(
    "fault 82: a last use at the end of the integers is a last use, and prune takes no difference that overflows") {
  const Folder folder;
  const auto path = sample_file(folder / "overlay.kiln");
  for (const char* time : {"-9223372036854775807 - 1", "9223372036854775807"}) {
    run_sql(path, std::string("UPDATE usage SET last_use = ") + time);
    PruneRule rule;
    rule.unused_seconds = 60;
    rule.now = 1790000000;
    rule.dry_run = true;
    CHECK(File::open(path, Access::read_write)->prune(rule).records == (time[0] == '-' ? 3 : 0));
  }
  faults::tally(82, 2, "last uses at the end of the integers");
}

}  // namespace
}  // namespace kiln::store
