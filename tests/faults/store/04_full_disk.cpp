#include <fstream>

#include "faults/skip.hpp"
#include "faults/store/private_mounts.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

bool has_row(File& file, int at, std::size_t cubin_bytes) {
  const auto record = file.find_record(sample_key(at), true);
  const auto cubin = file.find_cubin(digest_named(std::to_string(at)));
  return record && same(*record, sample_record_at(at)) && cubin && same(*cubin, sample_cubin_at(at, cubin_bytes));
}

bool all_rows_are_there(File& file, int rows, std::size_t cubin_bytes) {
  for (int at = 0; at < rows; ++at)
    if (!has_row(file, at, cubin_bytes)) return false;
  return true;
}

bool put_is_refused(File& file, int at, std::size_t cubin_bytes) {
  const auto cubin = sample_cubin_at(at, cubin_bytes);
  const auto said = refusal([&] { file.put(sample_record_at(at), &cubin); });
  return contains(said, "io: ") &&
         contains(said, "the disk is full, or this user's share of it; free some space there");
}

void take_the_rest(const fs::path& path) {
  std::ofstream rest(path, std::ios::binary);
  while (rest << std::string(1024, 'x') << std::flush) {
  }
}

/// Fills the disk, finds it full, frees it, and goes on.
bool live_on_a_small_disk(const fs::path& disk, std::size_t cubin_bytes) {
  if (!mount_disk(disk, "256k")) return false;
  Layers layers({.overlay = disk / "overlay.kiln"});
  File& file = layers.overlay();
  if (!layers.warnings().empty()) return false;
  int rows = 0;
  while (!put_is_refused(file, rows, cubin_bytes)) ++rows;
  take_the_rest(disk / "rest");
  bool right = rows > 0;
  for (int again = 0; again < 20; ++again)
    right = right && put_is_refused(file, rows + again, cubin_bytes) && has_row(file, again % rows, cubin_bytes);
  right = right && file.counters().read_failures == 0 && file.stats().records == rows;
  right = right && contains(refusal([&] { export_file(file, disk / "out.kiln", {}, false); }), "io: ");
  right = right && !fs::exists(disk / "out.kiln") && all_rows_are_there(file, rows, cubin_bytes);

  Layers second({.overlay = disk / "second.kiln"});  // there is no room to begin one
  const Record record = sample_record("key");
  right = right && second.warnings().empty();
  second.put_all({&record, 1}, {});
  right = right && second.warnings().size() == 1 && contains(second.warnings()[0], "memory only");
  right = right && second.find_record("key");

  right = right && mount_disk(disk, "2m", MS_REMOUNT) && !put_is_refused(file, rows, cubin_bytes);
  right = right && all_rows_are_there(*File::open(disk / "overlay.kiln", Access::read_write), rows + 1, cubin_bytes);
  return umount2(disk.c_str(), MNT_DETACH) == 0 && right;
}

TEST_CASE("fault 04: on a full disk a write is an error, reads go on, and with room again writes do") {
  const Folder folder;
  std::int64_t cases = 0;
  for (const std::size_t cubin_bytes : {0, 100, 2000, 4000, 9000, 20000, 50000}) {
    CAPTURE(cubin_bytes);
    const int status = exit_status(in_child([&] {
      if (!enter_private_namespace()) _exit(no_namespace);
      return live_on_a_small_disk(folder.path(), cubin_bytes);
    }));
    if (status == no_namespace) return faults::skip("a full disk: this user may not make a mount namespace");
    CHECK(status == 0);
    cases += 23;  // 21 writes, an export, a creation
  }
  faults::tally(4, cases, "writes to a full disk");
}

}  // namespace
}  // namespace kiln::store
