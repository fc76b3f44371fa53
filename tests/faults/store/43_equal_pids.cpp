// Writers of one file that cannot tell each other apart by their process ids, as in containers that share a volume. KILN_HAMMER_SECONDS says for how long.
#include <sched.h>

#include <chrono>

#include "faults/skip.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"
#include "store/verify.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int writers = 6;

/// Runs `work` as process 1 of a pid namespace of its own; its exit status is that of in_child, or 99 without the right to one.
template <class Work>
pid_t as_first_process(Work&& work) {
  const pid_t outer = fork();
  if (outer != 0) return outer;
  if (unshare(CLONE_NEWPID) != 0) _exit(99);
  _exit(exit_status(in_child([&] { return getpid() == 1 && work(); })));
}

/// Exports files of different lengths to the target until the end; an export is fine, or the test fails.
bool keep_exporting(const fs::path& folder, const fs::path& target, int writer, Clock::time_point end) {
  const auto source = File::open(folder / ("source-" + std::to_string(writer) + ".kiln"), Access::read_only);
  for (; Clock::now() < end; faults::tally(43, 1, "exports to one file by writers with equal process ids"))
    export_file(*source, target, {}, true);
  return true;
}

bool is_whole(const fs::path& target) {
  const Verification found = verify(target);
  return found.is_sound() && found.seal.manifest.size() == 3 && found.seal.manifest[0].rows >= 1 &&
         found.seal.manifest[0].rows == found.seal.manifest[2].rows;
}

TEST_CASE("fault 43: of writers with equal process ids none harms another, and the target is always whole") {
  const Folder folder;
  const fs::path target = folder / "release.kiln";
  for (int writer = 0; writer < writers; ++writer)
    sample_file(folder / ("source-" + std::to_string(writer) + ".kiln"), 1 + 3 * writer);
  export_file(*File::open(folder / "source-0.kiln", Access::read_only), target, {}, false);
  const auto end = Clock::now() + hammer_time(2);
  std::vector<pid_t> children;
  for (int writer = 0; writer < writers; ++writer)
    children.push_back(as_first_process([&] { return keep_exporting(folder.path(), target, writer, end); }));
  std::int64_t reads = 0, bad = 0;
  for (; Clock::now() < end; ++reads) bad += is_whole(target) ? 0 : 1;
  bool has_namespaces = true;
  for (const pid_t child : children) {
    const int status = exit_status(child);
    has_namespaces = has_namespaces && status != 99;
    CHECK((status == 0 || status == 99));
  }
  if (!has_namespaces) return faults::skip("this user may not make a pid namespace");
  CHECK(reads > 0);
  CHECK(bad == 0);
  CHECK(is_whole(target));
  std::int64_t files = 0;
  for (const auto& each : fs::directory_iterator(folder.path())) files += each.exists() ? 1 : 0;
  CHECK(files == writers + 1);
  faults::tally(43, reads, "looks at the target meanwhile");
}

}  // namespace
}  // namespace kiln::store
