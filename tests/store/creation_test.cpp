// Files that are created at their first write.
#include "store/layers.hpp"
#include "store/opening.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<File> open_later(const fs::path& path) {
  return File::open(path, Access::read_write, 0, Creation::at_first_write);
}

TEST_CASE("a file that is made at its first write is empty until then, and is nowhere") {
  const Folder folder;
  const fs::path path = folder / "deep" / "a.kiln";
  {
    const auto file = open_later(path);
    CHECK(!file->find_record("key"));
    CHECK(!file->find_cubin(digest_named("key")));
    CHECK(file->records().empty());
    CHECK(file->compilers().empty());
    CHECK(file->device_classes().empty());
    CHECK(file->stats().file_bytes == 0);
    CHECK(file->counters().read_failures == 0);
    file->flush_usage();
    file->compact();
  }
  CHECK(!fs::exists(path.parent_path()));
  {
    const auto file = open_later(path);
    file->put(sample_record("key"), nullptr);
    CHECK(file->find_record("key"));
  }
  CHECK(fs::exists(path));
  CHECK(open_later(path)->find_record("key"));
}

TEST_CASE("a folder that others may write and that came after the opening is not written to") {
  const Folder folder;
  const fs::path path = folder / "later" / "a.kiln";
  const auto file = open_later(path);
  fs::create_directory(path.parent_path());
  fs::permissions(path.parent_path(), fs::perms::all);
  CHECK(refusal([&] { file->put(sample_record("key"), nullptr); }).find("its folder") != std::string::npos);
  CHECK(!file->find_record("key"));
}

TEST_CASE("a file that another connection makes meanwhile is read, and written to") {
  const Folder folder;
  const auto waiting = open_later(folder / "a.kiln");
  CHECK(!waiting->find_record("theirs"));
  File::open(folder / "a.kiln", Access::read_write)->put(sample_record("theirs"), nullptr);
  CHECK(waiting->find_record("theirs"));
  waiting->put(sample_record("own"), nullptr);
  CHECK(File::open(folder / "a.kiln", Access::read_only)->stats().records == 2);
}

TEST_CASE("a file that is removed while it is open is made again by the next write") {
  const Folder folder;
  const auto file = open_later(folder / "a.kiln");
  file->put(sample_record("key"), nullptr);
  fs::remove(folder / "a.kiln");
  CHECK(!file->find_record("key"));
  CHECK(!fs::exists(folder / "a.kiln"));
  file->put(sample_record("key"), nullptr);
  CHECK(File::open(folder / "a.kiln", Access::read_only)->find_record("key"));
}

TEST_CASE("a file cannot wait for its first write where it could never be made") {
  const Folder folder;
  std::ofstream(folder / "no_folder") << "text";
  CHECK_THROWS_WITH_AS(open_later(folder / "no_folder" / "a.kiln"), doctest::Contains("cannot be made"), Error);
  CHECK_THROWS_WITH_AS(open_later(folder / std::string(300, 'n')), doctest::Contains("cannot be made"), Error);
}

TEST_CASE("layers whose overlay is only read leave nothing on the disk") {
  const Folder folder;
  {
    Layers layers({.overlay = folder / "cache" / "overlay.kiln"});
    CHECK(!layers.find_record("key"));
    CHECK(layers.warnings().empty());
  }
  CHECK(!fs::exists(folder / "cache"));
}

TEST_CASE("the tables of a new file are known by their digest, and no others are") {
  Connection connection = open_in_memory();
  CHECK(has_known_tables(tables_of(connection)));
  connection.execute("CREATE INDEX another ON record (bucket)");
  CHECK(!has_known_tables(tables_of(connection)));
}

}  // namespace
}  // namespace kiln::store
