#include "process/ranks.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

using namespace kiln::process;
using std::chrono::milliseconds;

namespace {

/// What a rank does, in its own process.
template <class Act>
RanksEnd end_of(int count, const Act& act, milliseconds grace = milliseconds(200)) {
  Ranks ranks(count, grace);
  if (ranks.rank()) {
    act(*ranks.rank());
    _exit(0);
  }
  return ranks.wait();
}

/// What one rank waits for until another has come so far.
class Gate {
 public:
  Gate() { REQUIRE(pipe(ends_) == 0); }
  ~Gate() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() const { static_cast<void>(!write(ends_[1], "", 1)); }
  void pass() const {
    char byte = 0;
    if (read(ends_[0], &byte, 1) != 1) _exit(99);
  }

 private:
  int ends_[2];
};

/// Whether every process that holds the other end has ended.
bool is_closed_within(int end, milliseconds time) {
  pollfd waiting{end, POLLIN, 0};
  char byte = 0;
  return poll(&waiting, 1, static_cast<int>(time.count())) == 1 && read(end, &byte, 1) == 0;
}

}  // namespace

TEST_CASE("each rank has its number, and the first exit status that is not 0 is told") {
  const RanksEnd good = end_of(3, [](int) {});
  CHECK(good.status == 0);
  CHECK(good.why.empty());
  CHECK_FALSE(good.was_interrupted);
  const RanksEnd bad = end_of(3, [](int rank) {
    if (rank > 0) _exit(10 + rank);
  });
  CHECK(bad.status == 11);
  CHECK(bad.why.empty());
}

TEST_CASE("a rank that a signal ends is named, and the others end after the grace") {
  const auto begun = std::chrono::steady_clock::now();
  const RanksEnd end = end_of(3, [](int rank) {
    if (rank == 1) kill(getpid(), SIGKILL);
    for (;;) pause();
  });
  CHECK(end.why == "rank 1 was ended by signal 9 (Killed)");
  CHECK(std::chrono::steady_clock::now() - begun > milliseconds(200));
}

TEST_CASE("a signal to the parent goes to rank 0 alone, which decides how all end") {
  const Gate is_blocked;
  const RanksEnd end = end_of(
      2,
      [&](int rank) {
        if (rank == 1) {
          is_blocked.pass();
          kill(getppid(), SIGTERM);
          std::this_thread::sleep_for(milliseconds(300));
          return;
        }
        sigset_t all;
        sigemptyset(&all);
        sigaddset(&all, SIGTERM);
        sigprocmask(SIG_BLOCK, &all, nullptr);
        is_blocked.open();
        int signal = 0;
        sigwait(&all, &signal);
        _exit(signal == SIGTERM ? 42 : 1);
      },
      milliseconds(10'000));
  CHECK(end.was_interrupted);
  CHECK(end.status == 42);
  CHECK(end.why.empty());
}

TEST_CASE("a second signal ends ranks that go on, and no rank outlives the parent") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Gate is_deaf;
  const RanksEnd end = end_of(2, [&](int rank) {
    signal(SIGINT, SIG_IGN);
    if (rank == 0) is_deaf.open();
    if (rank == 1) is_deaf.pass();
    if (rank == 1)
      for (int i = 0; i < 2; ++i, std::this_thread::sleep_for(milliseconds(200))) kill(getppid(), SIGINT);
    for (;;) pause();
  });
  CHECK(end.was_interrupted);
  CHECK(end.status != 0);
  CHECK(end.why.empty());
  const pid_t parent = fork();
  if (parent == 0) {
    Ranks ranks(2);
    if (ranks.rank())
      for (;;) pause();
    kill(getpid(), SIGKILL);
  }
  close(ends[1]);
  waitpid(parent, nullptr, 0);
  CHECK(is_closed_within(ends[0], milliseconds(10'000)));
  close(ends[0]);
}
