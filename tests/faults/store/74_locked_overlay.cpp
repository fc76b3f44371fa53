// An overlay that another process keeps locked while the layers are opened.
#include <sys/resource.h>

#include <chrono>

#include "faults/stopped.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// A lock that lets nobody read.
struct WholeLock {
  explicit WholeLock(const std::filesystem::path& path)
      : connection(Connection::open(path.native(), OpenMode::read_write)) {
    connection.execute("BEGIN EXCLUSIVE");
  }
  Connection connection;
};

TEST_CASE(
    "fault 74: an overlay that was locked at the opening is used when its lock is gone, and gets what was found") {
  const Folder folder;
  const auto path = sample_file(folder / "overlay.kiln");
  std::optional<faults::Stopped> holder(std::in_place, [&] { return std::make_unique<WholeLock>(path); });
  Layers layers({.overlay = path});
  REQUIRE(layers.warnings().size() == 1);
  CHECK(contains(layers.warnings()[0], "database is locked by " + holder->name()));
  CHECK(contains(layers.warnings()[0], "it is asked for again later"));
  CHECK(layers.layers()[0].refused.empty());
  const auto begun = Clock::now();
  for (int at = 0; at < 100; ++at) CHECK(!layers.find_record(sample_key(0)));
  CHECK(layers.acquire_lease("late", "me", 30));
  layers.put_all({{sample_record("late")}}, {{sample_cubin("late")}});
  CHECK(Clock::now() - begun < 4s);  // a look-up or write asks each second at most, and waits 200 ms
  CHECK(layers.find_record("late"));
  CHECK(!layers.keeps("late"));
  holder.reset();
  for (const auto until = Clock::now() + 20s; !layers.find_record(sample_key(0)) && Clock::now() < until;)
    usleep(50000);
  CHECK(layers.find_record(sample_key(0)));
  layers.put_all({{sample_record("later")}}, {});
  for (const char* key : {"late", "later"}) CHECK(layers.keeps(key));
  CHECK(layers.not_kept().empty());
  const auto other = File::open(path, Access::read_only);
  CHECK(other->find_record("late"));
  CHECK(other->find_cubin(digest_named("late")));
  faults::tally(74, 1, "overlays locked at their opening, then not");
}

TEST_CASE("fault 74: an overlay for which no descriptor was left at the opening is used when there are some") {
  const Folder folder;
  const auto path = sample_file(folder / "overlay.kiln");
  CHECK(exit_status(in_child([&] {
          rlimit few{};
          getrlimit(RLIMIT_NOFILE, &few);
          const rlimit many = few;
          const int next = dup(0);
          close(next);
          few.rlim_cur = static_cast<rlim_t>(next);
          setrlimit(RLIMIT_NOFILE, &few);
          Layers layers({.overlay = path});
          const auto said = layers.warnings();
          const bool missed = !layers.find_record(sample_key(0));
          setrlimit(RLIMIT_NOFILE, &many);
          for (int tries = 0; tries < 200 && !layers.find_record(sample_key(0)); ++tries) usleep(20000);
          return missed && said.size() == 1 && contains(said[0], "too many files are open") &&
                 layers.find_record(sample_key(0)).has_value();
        })) == 0);
  faults::tally(74, 1, "overlays without a descriptor at their opening");
}

TEST_CASE("fault 74: what was found while an overlay could not be written is stored at the end at the latest") {
  const Folder folder;
  const auto path = sample_file(folder / "overlay.kiln");
  {
    Layers layers({.overlay = path});
    REQUIRE(layers.find_record(sample_key(0)));
    // In the journal's place, and of no kind that SQLite deletes.
    REQUIRE(mkdir((path.native() + "-journal").c_str(), 0700) == 0);
    layers.put_all({{sample_record("late")}}, {{sample_cubin("late")}});
    CHECK(layers.warnings().size() == 1);
    CHECK(!layers.not_kept().empty());
    std::filesystem::remove(path.native() + "-journal");
  }
  CHECK(File::open(path, Access::read_only)->find_record("late"));
  faults::tally(74, 1, "overlays that could not be written for a while");
}

}  // namespace
}  // namespace kiln::store
