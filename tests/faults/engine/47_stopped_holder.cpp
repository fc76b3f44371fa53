// A process that is stopped while it holds the right to tune a bucket, or the overlay's lock.
#include <chrono>

#include "engine/lease.hpp"
#include "faults/engine/fixture.hpp"
#include "faults/engine/running.hpp"
#include "faults/stopped.hpp"
#include "manifest/key.hpp"
#include "store/sqlite.hpp"

namespace kiln::faults {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr const char* words = " scale rows=32 cols=128 dtype=f32";

std::string key_of_bucket() {
  const manifest::Op op = scale_op();
  const Problem bucket =
      manifest::make_problem(op, std::vector<manifest::Setting>{{"rows", "32"}, {"cols", "128"}, {"dtype", "f32"}});
  return manifest::Bucket({op, h200(), Regime::cold_l2}, bucket).key();
}

auto holding_lease(const fs::path& overlay, std::int64_t term_seconds) {
  return [overlay, term_seconds] {
    auto file = store::File::open(overlay, store::Access::read_write);
    file->acquire_lease(key_of_bucket(), "another", term_seconds);
    return file;
  };
}

struct HeldLock {
  explicit HeldLock(const fs::path& path)
      : connection(store::Connection::open(path.native(), store::OpenMode::read_write)),
        transaction(connection, store::Transaction::Kind::write) {}
  store::Connection connection;
  store::Transaction transaction;
};

/// A command that waits ends within moments of a SIGINT, and its status says so.
void check_ends_at_once(Running& command) {
  const auto begun = Clock::now();
  command.interrupt();
  CHECK(command.status() == 130);
  CHECK(Clock::now() - begun < 3s);
}

}  // namespace

TEST_CASE("fault 47: who waits for a stopped process that tunes the same bucket says so, and obeys Ctrl-C at once") {
  for (const std::string command : {"run", "tune"}) {
    const TemporaryFolder folder;
    const fs::path overlay = tuned_overlay(folder);
    const Stopped holder(holding_lease(overlay, 3600));
    {
      Running waiting(command + words + globals(folder) + " 2>&1");
      REQUIRE(waiting.wait_for(" waits: " + holder.name()));
      CHECK_MESSAGE(contains(waiting.said(), "which is stopped"), waiting.said());
      check_ends_at_once(waiting);
    }
    Running waiting(command + words + " --json" + globals(folder));
    REQUIRE(waiting.wait_for("\"event\":\"waiting\""));
    CHECK_MESSAGE(contains(waiting.said(), holder.name()), waiting.said());
    check_ends_at_once(waiting);
  }
  tally(47, 4, "commands that wait for a stopped process");
}

TEST_CASE("fault 47: the wait for a stopped process ends with its term, and the bucket is tuned") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  const Stopped holder(holding_lease(overlay, 2));
  const auto begun = Clock::now();
  const std::string said = expect(0, "kiln tune" + std::string(words) + globals(folder));
  CHECK(Clock::now() - begun < 8s);
  CHECK_MESSAGE(contains(said, "tuned now"), said);
  tally(47, 1, "leases of a stopped process that ended");
}

TEST_CASE("fault 47: a holder that lives keeps its lease for longer than a term, and gives it back") {
  const TemporaryFolder folder;
  store::Layers mine({.overlay = folder / "overlay.kiln"}), theirs({.overlay = folder / "overlay.kiln"});
  {
    engine::Lease lease(mine, "key", "mine", 3);
    REQUIRE(lease.acquire());
    for (int tenths = 0; tenths < 42; ++tenths) {
      CHECK(!theirs.acquire_lease("key", "theirs", 2));
      std::this_thread::sleep_for(100ms);
    }
  }
  CHECK(theirs.acquire_lease("key", "theirs", 2));
  tally(47, 1, "leases that were renewed");
}

TEST_CASE("fault 47: a child of fork neither waits for the renewal of its parent's lease nor gives the lease back") {
  const TemporaryFolder folder;
  store::Layers mine({.overlay = folder / "overlay.kiln"}), theirs({.overlay = folder / "overlay.kiln"});
  auto lease = std::make_unique<engine::Lease>(mine, "key", "mine");
  REQUIRE(lease->acquire());
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    lease.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(!theirs.acquire_lease("key", "theirs", 2));
  tally(47, 1, "forks of a process that holds a lease");
}

TEST_CASE("fault 47: a command obeys Ctrl-C at once while a stopped process holds the overlay's lock") {
  for (const std::string command : {"run", "tune"}) {
    const TemporaryFolder folder;
    const fs::path overlay = tuned_overlay(folder);
    const Stopped writer([&] { return std::make_unique<HeldLock>(overlay); });
    Running waiting(command + words + globals(folder) + " 2>&1");
    std::this_thread::sleep_for(1500ms);
    check_ends_at_once(waiting);
  }
  tally(47, 2, "commands that wait for a lock");
}

TEST_CASE("fault 47: a run beside a stopped writer waits for its lock once, names it, and uses the result") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  const Stopped writer([&] { return std::make_unique<HeldLock>(overlay); });
  const auto begun = Clock::now();
  const std::string said = expect(4, "kiln run" + std::string(words) + globals(folder));
  CHECK(Clock::now() - begun < 15s);
  CHECK_MESSAGE(contains(said, "is locked by " + writer.name()), said);
  CHECK_MESSAGE(contains(said, "which is stopped"), said);
  CHECK_MESSAGE(contains(said, "right; largest error"), said);
  tally(47, 1, "runs beside a lock that is held");
}

}  // namespace kiln::faults
