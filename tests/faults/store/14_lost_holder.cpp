#include <signal.h>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

/// A process that holds the lease of "key" and does nothing more.
class Holder {
 public:
  Holder(const std::filesystem::path& path, std::int64_t term_seconds) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    process_ = in_child([&] {
      const auto file = File::open(path, Access::read_write);
      const char held = file->acquire_lease("key", "child", term_seconds) ? 'y' : 'n';
      if (write(ends[1], &held, 1) != 1) return false;
      for (;;) pause();
    });
    char held = 0;
    REQUIRE(read(ends[0], &held, 1) == 1);
    CHECK(held == 'y');
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() {
    kill(process_, SIGKILL);
    exit_status(process_);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  [[nodiscard]] pid_t process() const { return process_; }

 private:
  pid_t process_ = 0;
};

TEST_CASE("fault 14: the lease of a process that died is taken over at once, reaped or not") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  for (const bool reaped : {false, true}) {
    CAPTURE(reaped);
    Holder holder(folder / "a.kiln", 3600);
    CHECK(!file->acquire_lease("key", "parent", 60));
    kill(holder.process(), SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(holder.process()), &info, WEXITED | (reaped ? 0 : WNOWAIT));
    CHECK(file->acquire_lease("key", "parent", 60));
    file->release_lease("key", "parent");
  }
  faults::tally(14, 2, "lease holders killed");
}

TEST_CASE("fault 14: the lease of a process that is stopped ends with its term, and it does not get it back") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  const Holder holder(folder / "a.kiln", 2);
  REQUIRE(kill(holder.process(), SIGSTOP) == 0);
  CHECK(!file->acquire_lease("key", "parent", 60));
  int tenths = 0;
  while (!file->acquire_lease("key", "parent", 60) && tenths < 40) {
    usleep(100 * 1000);
    ++tenths;
  }
  CHECK(tenths < 40);
  kill(holder.process(), SIGCONT);
  const int status = exit_status(
      in_child([&] { return !File::open(folder / "a.kiln", Access::read_write)->acquire_lease("key", "child", 2); }));
  CHECK(status == 0);
  faults::tally(14, 1, "lease holders stopped");
}

}  // namespace
}  // namespace kiln::store
