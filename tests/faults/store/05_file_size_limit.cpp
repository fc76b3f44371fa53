#include <signal.h>
#include <sys/resource.h>

#include <functional>
#include <sstream>

#include "faults/store/operations.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

bool limit_files_to(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  return signal(SIGXFSZ, SIG_DFL) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

/// A signal that stayed pending would end the process as soon as it is let through.
bool is_signal_free() {
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&pending, SIGXFSZ) == 0 && sigismember(&blocked, SIGXFSZ) == 0;
}

/// Only a file that was longer than the limit already can stay in need of a roll-back that the limit forbids: its rows
/// are then misses, and counted.
bool reads_go_on(File& file, bool may_miss) {
  const auto row = file.find_record("key0", true);
  return row ? same(*row, sample_record_at(0)) : may_miss && file.counters().read_failures > 0;
}

TEST_CASE("fault 05: a write past the file-size limit is an error, the process lives, and reads go on") {
  std::int64_t cases = 0, refused = 0;
  for (const Operation& operation : operations())
    for (const rlim_t limit : {0, 600, 4096, 9000, 20000, 40000, 60000, 90000, 200000}) {
      const Folder folder;
      operation.prepare(folder.path());
      const auto before = content_of(folder / "a.kiln");
      const bool may_miss = fs::exists(folder / "a.kiln") && fs::file_size(folder / "a.kiln") > limit;
      CAPTURE(operation.name);
      CAPTURE(limit);
      const int status = exit_status(in_child([&] {
        Scene scene = make_scene(operation, folder.path());
        if (!limit_files_to(limit)) return false;
        const Outcome outcome = run(operation, scene);
        if (outcome == Outcome::wrong || !is_signal_free()) return false;
        if (!operation.opens_itself && !reads_go_on(*scene.file, may_miss)) return false;
        if (outcome == Outcome::refused) _exit(3);
        return true;
      }));
      CHECK((status == 0 || status == 3));
      if (status == 3) CHECK(content_of(folder / "a.kiln") == before);
      ++cases;
      refused += status == 3 ? 1 : 0;
    }
  CHECK(refused > 20);
  faults::tally(5, cases, "operations under a file-size limit");
}

TEST_CASE("fault 05: what a killed process left behind is rolled back under the limit without a signal") {
  const Folder folder;
  sample_file(folder / "a.kiln", 20, 9000);
  const auto before = content_of(folder / "a.kiln");
  // A journal that is hot: its process dies between the first write to the file and the commit.
  const pid_t child = in_child([&] {
    sqlite3* database = nullptr;
    sqlite3_open((folder / "a.kiln").c_str(), &database);
    sqlite3_exec(database, "PRAGMA cache_size = 1; BEGIN; UPDATE image SET frame = zeroblob(20000);", nullptr, nullptr,
                 nullptr);
    kill(getpid(), SIGKILL);
    return false;
  });
  CHECK(exit_status(child) == 128 + SIGKILL);
  REQUIRE(fs::file_size(folder.path() / "a.kiln-journal") > 0);
  const int status = exit_status(in_child([&] {
    if (!limit_files_to(4096)) return false;
    const auto said = refusal([&] { File::open(folder / "a.kiln", Access::read_write); });
    return contains(said, "io: ") && is_signal_free();
  }));
  CHECK(status == 0);
  CHECK(content_of(folder / "a.kiln") == before);
  faults::tally(5, 1, "a roll-back under a file-size limit");
}

TEST_CASE("fault 05: a signal that the caller holds back stays his") {
  const int status = exit_status(in_child([&] {
    sigset_t limit;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, nullptr);
    raise(SIGXFSZ);
    File::in_memory()->put(sample_record("key"), nullptr);
    sigset_t pending, blocked;
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return sigismember(&pending, SIGXFSZ) == 1 && sigismember(&blocked, SIGXFSZ) == 1;
  }));
  CHECK(status == 0);
  faults::tally(5, 1, "a signal that the caller had blocked");
}

}  // namespace
}  // namespace kiln::store
