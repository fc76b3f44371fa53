#include <fcntl.h>
#include <sys/stat.h>

#include <array>

#include "faults/store/operations.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

void forget_times(const std::filesystem::path& folder) {
  const std::array<timespec, 2> beginning{};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    CHECK(utimensat(AT_FDCWD, entry.path().c_str(), beginning.data(), 0) == 0);
  CHECK(utimensat(AT_FDCWD, folder.c_str(), beginning.data(), 0) == 0);
}

TEST_CASE("fault 21: no operation cares for the times of files") {
  std::int64_t cases = 0;
  for (const Operation& operation : operations()) {
    const Folder folder;
    operation.prepare(folder.path());
    forget_times(folder.path());
    Scene scene = make_scene(operation, folder.path());
    forget_times(folder.path());
    CAPTURE(operation.name);
    CHECK(run(operation, scene) == Outcome::done);
    ++cases;
  }
  faults::tally(21, cases, "operations on files of the year 1970");
}

// Both have the time 0 and perhaps one length: only the content says that they differ.
TEST_CASE("fault 21: a write by another process is seen though the file's time does not change") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 1);
  const auto file = File::open(path, Access::read_write);
  for (int at = 0; at < 20; ++at) {
    const int status = exit_status(in_child([&] {
      File::open(path, Access::read_write)->put(sample_record("key0", at), nullptr);
      return true;
    }));
    CHECK(status == 0);
    forget_times(folder.path());
    CHECK(file->find_record("key0")->at_edge().cost_ns == at);
  }
  faults::tally(21, 20, "writes that leave no time");
}

}  // namespace
}  // namespace kiln::store
