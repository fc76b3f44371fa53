#include <csignal>
#include <string>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

constexpr int exports = 20;

/// A record and its machine code, in one transaction, again and again; keys fall before and behind what an export has read.
[[noreturn]] void write_for_ever(const std::filesystem::path& path) {
  const auto file = File::open(path, Access::read_write);
  for (int i = 0;; ++i) {
    const std::string name = std::to_string(i * 7919 % 10007) + "." + std::to_string(i);
    const auto cubin = sample_cubin(name, 2000);
    file->put(sample_record(name), &cubin);
    usleep(2000);
  }
}

template <class Copy>
void copy_beside_a_writer(const char* what, const Copy& copy) {
  const Folder folder;
  const auto path = sample_file(folder / "live.kiln", 0);
  const pid_t writer = in_child([&]() -> bool { write_for_ever(path); });
  int torn = 0, rows = 0;
  std::int64_t flawed = 0;  // rows that are only changing are no flaws
  for (int i = 0; i < exports; ++i) {
    const auto target = folder / "copy.kiln";
    {
      const auto live = File::open(path, Access::read_only);
      copy(*live, target);
      flawed += live->counters().quarantined;
    }
    const auto copied = File::open(target, Access::read_only);
    const auto stats = copied->stats();
    torn += stats.records != stats.cubins ? 1 : 0;
    rows = static_cast<int>(stats.records);
    unlink(target.c_str());
  }
  kill(writer, SIGKILL);
  exit_status(writer);
  CAPTURE(what);
  CHECK(rows > 0);
  CHECK(torn == 0);
  CHECK(flawed == 0);
  faults::tally(48, exports, what);
}

}  // namespace

TEST_CASE("fault 48: an export of a file that another process writes is of one moment") {
  copy_beside_a_writer("exports beside a writer",
                       [](File& live, const std::filesystem::path& target) { export_file(live, target, {}, false); });
}

TEST_CASE("fault 48: so is a merge into another file") {
  copy_beside_a_writer("merges beside a writer", [](File& live, const std::filesystem::path& target) {
    merge_into(live, *File::open(target, Access::read_write));
  });
}

TEST_CASE("fault 48: a file is merged into itself under another name, and nothing waits for itself") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 3);
  const auto again = folder / "." / "a.kiln";
  const auto from = File::open(again, Access::read_only), to = File::open(path, Access::read_write);
  const auto report = merge_into(*from, *to);
  CHECK(report.added + report.replaced + report.cubins == 0);
  CHECK(to->stats().records == 3);
}

}  // namespace kiln::store
