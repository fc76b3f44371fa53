// A process that is stopped while it holds the file's lock, or a lease.
#include <chrono>
#include <csignal>

#include "faults/stopped.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/verify.hpp"

namespace kiln::store {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using faults::Stopped;

struct HeldLock {
  explicit HeldLock(const std::filesystem::path& path)
      : connection(Connection::open(path.native(), OpenMode::read_write)),
        transaction(connection, Transaction::Kind::write) {}
  Connection connection;
  Transaction transaction;
};

template <class Work>
Clock::duration time_of(Work&& work) {
  const auto begun = Clock::now();
  work();
  return Clock::now() - begun;
}

}  // namespace

TEST_CASE("fault 47: who waits in vain for a stopped process's lock names it, and does not wait long a second time") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  const auto file = File::open(path, Access::read_write);
  const Stopped writer([&] { return std::make_unique<HeldLock>(path); });
  std::string said;
  const auto put = [&] { said = refusal([&] { file->put(sample_record("late"), nullptr); }); };
  CHECK(time_of(put) > 4s);
  CAPTURE(said);
  CHECK(contains(said, "io: '" + path.string() + "' cannot be written: database is locked by " + writer.name()));
  CHECK(contains(said, "which is stopped"));
  for (int again = 0; again < 3; ++again) CHECK(time_of(put) < 2s);
  CHECK(contains(said, "is locked by"));
  CHECK(file->find_record("key1"));
  faults::tally(47, 4, "writes beside a stopped writer");
}

TEST_CASE("fault 47: a wait for a lock ends when it is asked to stop") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  const auto file = File::open(path, Access::read_write);
  file->stop_waiting_when([] { return true; });
  CHECK_NOTHROW(file->put(sample_record("before"), nullptr));
  const Stopped writer([&] { return std::make_unique<HeldLock>(path); });
  CHECK(time_of([&] { CHECK(!refusal([&] { file->put(sample_record("late"), nullptr); }).empty()); }) < 2s);
  faults::tally(47, 1, "waits that were ended");
}

TEST_CASE("fault 47: a lease names its holder, and whether that is stopped") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  const auto file = File::open(path, Access::read_write);
  CHECK(file->lease_holder("key").empty());
  {
    const Stopped holder([&] {
      auto own = File::open(path, Access::read_write);
      own->acquire_lease("key", "child", 3600);
      return own;
    });
    CHECK(contains(file->lease_holder("key"), holder.name()));
    CHECK(contains(file->lease_holder("key"), "), which is stopped"));
  }
  REQUIRE(file->acquire_lease("key", "mine", 60));
  CHECK(file->lease_holder("key") == "another engine of this process");
  faults::tally(47, 2, "holders of leases");
}

}  // namespace kiln::store
