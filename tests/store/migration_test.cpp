// A file of each version that ever shipped is kept in versions/ and must open.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>

#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

fs::path kept(const Folder& folder, const std::string& name) {
  const fs::path path = folder / (name + ".kiln");
  fs::copy_file(fs::path(KILN_VERSIONS) / (name + ".db"), path);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  return path;
}

/// What version 1 held, whichever way it was opened.
void check_content(File& file) {
  const auto records = file.records({}, true);
  REQUIRE(records.size() == 3);
  CHECK(std::ranges::all_of(records, [](const Record& each) { return each.op == "rms_norm" && each.cost_ns > 0; }));
  CHECK(std::ranges::count_if(records, [](const Record& each) { return each.candidates.size() == 2; }) == 2);
  const auto cubins = file.cubins();
  REQUIRE(cubins.size() == 5);
  CHECK(std::ranges::count(cubins, "rms_norm", &CubinRow::op) == 3);
  CHECK(std::ranges::count(cubins, "", &CubinRow::op) == 2);
  for (const CubinRow& cubin : cubins) CHECK(same(file.find_cubin(cubin.key).value(), cubin));
  REQUIRE(file.histogram().size() == 1);
  CHECK(file.histogram()[0].launches == 17);
  CHECK(file.stats().quarantined == 1);
  CHECK(file.counters().quarantined == 0);
}

std::int64_t version_in(const fs::path& path) { return static_cast<unsigned char>(bytes_of(path)[63]); }

TEST_CASE("a file of version 1 is migrated where it stands when it may be written, once") {
  const Folder folder;
  const auto path = kept(folder, "1");
  REQUIRE(version_in(path) == 1);
  {
    const auto file = File::open(path, Access::read_write);
    check_content(*file);
    file->put(sample_record("new"), nullptr);
  }
  CHECK(version_in(path) == 2);
  const auto file = File::open(path, Access::read_only);
  CHECK(file->records().size() == 4);
  CHECK(file->cubins().size() == 5);
}

TEST_CASE("a base of version 1 is read in a migrated copy, and not changed") {
  const Folder folder;
  const auto path = kept(folder, "1");
  const auto before = bytes_of(path);
  check_content(*File::open(path, Access::read_only));
  CHECK(bytes_of(path) == before);
  const auto sealed = File::open(kept(folder, "1-sealed"), Access::read_only);
  CHECK(sealed->records().size() == 1);
  CHECK(sealed->cubins().size() == 5);
}

TEST_CASE("a cubin that did not hold in version 1 is set aside by the migration") {
  const Folder folder;
  const auto path = kept(folder, "1");
  run_sql(path,
          "UPDATE cubin SET arch = 'sm_80' WHERE id = 2; UPDATE cubin SET image = zeroblob(80000000) WHERE id = 3");
  const auto file = File::open(path, Access::read_write);
  CHECK(file->cubins().size() == 3);
  CHECK(file->records().size() == 3);
  CHECK(file->stats().quarantined == 3);
}

TEST_CASE("a migration that cannot be written leaves version 1 whole") {
  const Folder folder;
  const auto path = kept(folder, "1");
  const auto before = bytes_of(path);
  const pid_t child = in_child([&] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = before.size() / 2;  // of any file that is written
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    return contains(refusal([&] { File::open(path, Access::read_write); }), "io: ");
  });
  CHECK(exit_status(child) == 0);
  CHECK(version_in(path) == 1);
  check_content(*File::open(path, Access::read_write));
}

TEST_CASE("two processes that open a file of version 1 at once migrate it once") {
  const Folder folder;
  const auto path = kept(folder, "1");
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child)
    children.push_back(in_child([&] {
      const auto file = File::open(path, Access::read_write);
      return file->records().size() == 3 && file->cubins().size() == 5;
    }));
  for (const pid_t child : children) CHECK(exit_status(child) == 0);
  check_content(*File::open(path, Access::read_write));
}

TEST_CASE("a file of version 1 with other tables is refused") {
  const Folder folder;
  const auto path = kept(folder, "1");
  run_sql(path, "ALTER TABLE cubin ADD COLUMN op TEXT");
  CHECK(contains(refusal([&] { File::open(path, Access::read_only); }),
                 "its tables are not those of a .kiln file of version 1"));
}

}  // namespace
}  // namespace kiln::store
