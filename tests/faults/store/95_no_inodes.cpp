// A disk with room for bytes and none for another file.
#include <fstream>

#include "faults/skip.hpp"
#include "faults/store/private_mounts.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"
#include "store/output_file.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

bool is_told(const std::string& said) {
  if (contains(said, "no inodes are left") && said.starts_with("io: ") && !contains(said, "permission")) return true;
  std::fprintf(stderr, "said: %s\n", said.c_str());
  return false;
}

bool live_without_inodes(const fs::path& disk) {
  if (!mount_disk(disk, "4m,nr_inodes=16")) return false;
  const auto path = sample_file(disk / "overlay.kiln");
  const auto file = File::open(path, Access::read_write);
  fs::create_directory(disk / "folder");
  for (int at = 0; std::ofstream(disk / std::to_string(at)); ++at) {
  }
  bool right = is_told(refusal([&] { file->put(sample_record("late"), nullptr); }));
  right = is_told(refusal([&] { file->compact(); })) && right;
  right = is_told(refusal([&] { export_file(*file, disk / "out.kiln", {}, false); })) && right;
  right = is_told(refusal([&] { write_text(disk / "out.txt", "text"); })) && right;
  right = is_told(refusal([&] { File::open(disk / "new.kiln", Access::read_write); })) && right;
  right = is_told(refusal([&] { File::open(disk / "folder/deep/new.kiln", Access::read_write); })) && right;
  right = right && file->find_record(sample_key(0)) && file->counters().read_failures == 0;
  Layers layers({.overlay = path});
  layers.put_all({{sample_record("late")}}, {});
  right =
      right && layers.warnings().size() == 1 && is_told("io: " + layers.warnings()[0]) && layers.find_record("late");
  fs::remove(disk / "0");
  layers.put_all({{sample_record("later")}}, {});
  right = right && layers.keeps("late") && layers.keeps("later") && layers.not_kept().empty();
  return umount2(disk.c_str(), MNT_DETACH) == 0 && right;
}

TEST_CASE(
    "fault 95: a disk without inodes is told as that, and what was kept in memory is stored when there are some") {
  const Folder folder;
  const int status = exit_status(in_child([&] {
    if (!enter_private_namespace()) _exit(no_namespace);
    return live_without_inodes(folder.path());
  }));
  if (status == no_namespace) return faults::skip("no inodes: this user may not make a mount namespace");
  CHECK(status == 0);
  faults::tally(95, 8, "files that could not be made for want of inodes");
}

}  // namespace
}  // namespace kiln::store
