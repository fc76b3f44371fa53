// The calendar clock of this executable, which stands ahead of or behind the machine's by what a test says.
#include <sys/syscall.h>
#include <sys/time.h>

#include <atomic>
#include <ctime>

#include "faults/store/operations.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace {

std::atomic<std::time_t> ahead_seconds = 0;

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto status = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_seconds;
  return status;
}
time_t time(time_t* to) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr) *to = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(timeval* to, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *to = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

}  // extern "C"

namespace kiln::store {
namespace {

constexpr std::time_t ten_years = 10 * 365 * 86400L;

class Jump {
 public:
  explicit Jump(std::time_t seconds) { ahead_seconds = seconds; }
  ~Jump() { ahead_seconds = 0; }
  Jump(const Jump&) = delete;
  Jump& operator=(const Jump&) = delete;
};

TEST_CASE("fault 20: no operation cares for what year it is") {
  std::int64_t cases = 0;
  for (const std::time_t seconds : {ten_years, -ten_years})
    for (const Operation& operation : operations()) {
      const Folder folder;
      operation.prepare(folder.path());
      Scene scene = make_scene(operation, folder.path());
      const Jump jump(seconds);
      CAPTURE(operation.name);
      CAPTURE(seconds);
      CHECK(run(operation, scene) == Outcome::done);
      ++cases;
    }
  CHECK(std::abs(std::time(nullptr) - static_cast<std::time_t>([] {
                   timespec now{};
                   syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
                   return now.tv_sec;
                 }())) <= 1);
  faults::tally(20, cases, "operations ten years off");
}

TEST_CASE("fault 20: a lease is neither lost nor prolonged when the clock jumps") {
  const auto file = File::in_memory();
  CHECK(file->acquire_lease("long", "a", 3600));
  CHECK(file->acquire_lease("short", "a", 1));
  const auto check_leases = [&](std::time_t seconds, const std::string& thief) {
    const Jump jump(seconds);
    CHECK(!file->acquire_lease("long", thief, 60));
    file->release_lease("short", "b");
    file->release_lease("short", "c");
    CHECK(file->acquire_lease("short", thief, 60));
  };
  {
    const Jump jump(ten_years);
    CHECK(!file->acquire_lease("short", "b", 60));
  }
  usleep(2100 * 1000);
  check_leases(ten_years, "b");
  check_leases(-ten_years, "c");
  faults::tally(20, 4, "leases across a jump");
}

TEST_CASE("fault 20: rows that were written ten years from now, or ago, serve") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  {
    const Jump jump(ten_years);
    sample_file(path, 2);
  }
  const Jump jump(-ten_years);
  const auto file = File::open(path, Access::read_write);
  CHECK(file->find_record("key0"));
  CHECK(file->find_cubin(digest_named("1")));
  PruneRule rule;
  rule.unused_seconds = 3600;
  rule.now = std::time(nullptr);
  CHECK(file->prune(rule).records == 0);  // a last use in the future is as good as now
  faults::tally(20, 3, "rows of another decade");
}

}  // namespace
}  // namespace kiln::store
