// Several users of one file: concurrent writers, leases.
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

}  // namespace
}  // namespace kiln::store
