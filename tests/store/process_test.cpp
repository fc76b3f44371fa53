// Several processes at one file: writers at once, forks, kills, leases.
#include <signal.h>

#include <atomic>
#include <thread>

#include "store/opening.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

TEST_CASE("processes that write at once lose nothing") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child)
    children.push_back(in_child([&] {
      const auto file = File::open(path, Access::read_write);  // all of them find no file
      for (int at = 0; at < 100; ++at)
        file->put(sample_record(std::to_string(child) + "/" + std::to_string(at)), nullptr);
      return file->counters().write_failures == 0;
    }));
  for (const pid_t child : children) CHECK(exit_status(child) == 0);
  CHECK(File::open(path, Access::read_only)->records().size() == 400);
}

TEST_CASE("a child of fork opens its own connection, and both go on") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  file->put(sample_record("before"), nullptr);
  const pid_t child = in_child([&] {
    if (!file->find_record("before")) return false;
    for (int at = 0; at < 50; ++at) file->put(sample_record("child" + std::to_string(at)), nullptr);
    return file->stats().records >= 51;
  });
  for (int at = 0; at < 50; ++at) file->put(sample_record("parent" + std::to_string(at)), nullptr);
  CHECK(exit_status(child) == 0);
  CHECK(file->stats().records == 101);
  CHECK(file->counters().read_failures == 0);
}

TEST_CASE("a file in memory is empty in a child of fork, and still works") {
  const auto file = File::in_memory();
  file->put(sample_record("before"), nullptr);
  const pid_t child = in_child([&] {
    file->put(sample_record("child"), nullptr);
    return !file->find_record("before") && file->find_record("child");
  });
  CHECK(exit_status(child) == 0);
  CHECK(file->stats().records == 1);
}

TEST_CASE("a lease excludes others until it is released") {
  const auto file = File::in_memory();
  CHECK(file->acquire_lease("key", "a", 60));
  CHECK(file->acquire_lease("key", "a", 60));
  CHECK(!file->acquire_lease("key", "b", 60));
  CHECK(file->acquire_lease("other", "b", 60));
  file->release_lease("key", "b");
  CHECK(!file->acquire_lease("key", "b", 60));
  file->release_lease("key", "a");
  CHECK(file->acquire_lease("key", "b", 60));
}

TEST_CASE("a lease ends with its term, though its holder lives") {
  const auto file = File::in_memory();
  CHECK(file->acquire_lease("key", "a", 0));
  CHECK(file->acquire_lease("key", "b", 1));
  CHECK(!file->acquire_lease("key", "c", 1));
  usleep(2100 * 1000);
  CHECK(file->acquire_lease("key", "c", 1));
}

TEST_CASE("the lease of a process that died is taken over at once, reaped or not") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = in_child([&] {
    char done = file->acquire_lease("key", "child", 3600) ? 'y' : 'n';
    if (write(pipe_ends[1], &done, 1) != 1) return false;
    pause();
    return true;
  });
  char done = 0;
  REQUIRE(read(pipe_ends[0], &done, 1) == 1);
  CHECK(done == 'y');
  CHECK(!file->acquire_lease("key", "parent", 60));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK(file->acquire_lease("key", "parent", 60));
  CHECK(exit_status(child) == 128 + SIGKILL);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_CASE("one of many processes gets a lease") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  File::open(path, Access::read_write);
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child)
    children.push_back(in_child([&] {
      const auto file = File::open(path, Access::read_write);
      const bool mine = file->acquire_lease("key", std::to_string(getpid()), 60);
      usleep(300 * 1000);  // all have asked before the first dies
      return mine;
    }));
  int holders = 0;
  for (const pid_t child : children) holders += exit_status(child) == 0 ? 1 : 0;
  CHECK(holders == 1);
}

}  // namespace
}  // namespace kiln::store
