// What writers leave behind that die before they are done.
#include <algorithm>
#include <csignal>
#include <random>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/integrity.hpp"
#include "store/output_file.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(folder)) names.push_back(each.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::int64_t leftovers_in(const fs::path& folder) {
  const auto names = names_in(folder);
  return std::count_if(names.begin(), names.end(), [](const std::string& name) { return contains(name, ".tmp"); });
}

TEST_CASE("fault 44: what killed writers leave behind is removed by the next output, and none pile up") {
  const Folder folder;
  const auto source = sample_file(folder / "source.kiln", 40, 20'000);
  std::mt19937 random(44);
  constexpr int kills = 50;
  std::int64_t left = 0;
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    const pid_t child = in_child([&] {
      const auto from = File::open(source, Access::read_only);
      for (;;) {
        export_file(*from, folder / "release.kiln", {}, true);
        write_text(folder / "report.html", std::string(100'000, 'x'));
      }
      return true;
    });
    usleep(static_cast<useconds_t>(2'000 + random() % 20'000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    left += leftovers_in(folder.path());
    CHECK(leftovers_in(folder.path()) <= 1);
  }
  CHECK(left > 0);  // else nobody was killed in the middle
  export_file(*File::open(source, Access::read_only), folder / "release.kiln", {}, true);
  CHECK(leftovers_in(folder.path()) == 0);
  faults::tally(44, kills, "killed writers of outputs");
}

TEST_CASE("fault 44: what a living writer has begun stays, as does what only looks like a leftover") {
  const Folder folder;
  const std::string digits(32, 'a');
  fs::create_directory(folder / (".kiln-" + digits + ".tmp"));
  write_bytes(folder / (".kiln-" + digits + ".tmp/mine"), "the user's");
  write_bytes(folder / ".kiln-notes.tmp", "the user's");
  OutputFile slow(folder / "a.txt");
  write_bytes(slow.path(), "slow");
  write_text(folder / "b.txt", "quick");
  CHECK(bytes_of(slow.path()) == "slow");
  CHECK(slow.move_into_place(Existing::keep));
  CHECK(bytes_of(folder / "a.txt") == "slow");
  CHECK(bytes_of(folder / "b.txt") == "quick");
  CHECK(bytes_of(folder / (".kiln-" + digits + ".tmp/mine")) == "the user's");
  CHECK(bytes_of(folder / ".kiln-notes.tmp") == "the user's");
}

TEST_CASE("fault 44: the journal of a file that is replaced is not played back into the new one") {
  const Folder folder;
  const auto old_file = sample_file(folder / "old.kiln", 5);
  const fs::path target = folder / "release.kiln";
  sample_file(target, 2);
  const pid_t child = in_child([&] {
    const auto file = File::open(target, Access::read_write);
    file->write_all([&](Writer& writer) {
      for (int at = 10; at < 400; ++at) writer.put(sample_record_at(at));  // more than SQLite keeps in memory
      writer.put(pack(sample_cubin("large", 16 << 20)));
      if (fs::exists(target.string() + "-journal")) raise(SIGKILL);
    });
    return true;
  });
  CHECK(exit_status(child) == 128 + SIGKILL);
  REQUIRE(fs::exists(target.string() + "-journal"));
  export_file(*File::open(old_file, Access::read_only), target, {}, true);
  CHECK(File::open(target, Access::read_only)->stats().records == 5);
  CHECK(quick_check(target) == "ok\n");
}

}  // namespace
}  // namespace kiln::store
