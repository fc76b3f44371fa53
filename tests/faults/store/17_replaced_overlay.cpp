#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

TEST_CASE("fault 17: an overlay that is deleted while it is open is begun again") {
  const Folder folder;
  const auto path = folder / "deep" / "a.kiln";
  const auto file = File::open(path, Access::read_write);
  file->put(sample_record("first"), nullptr);
  fs::remove(path);
  file->put(sample_record("second"), nullptr);
  CHECK(File::open(path, Access::read_only)->find_record("second"));
  fs::remove_all(path.parent_path());
  CHECK(!file->find_record("second"));
  file->put(sample_record("third"), nullptr);
  CHECK(File::open(path, Access::read_only)->find_record("third"));
  CHECK(file->counters().read_failures == 0);
  faults::tally(17, 2, "overlays deleted while open");
}

TEST_CASE("fault 17: an overlay that is replaced while it is open is opened anew") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  file->put(sample_record("first"), nullptr);
  for (int at = 0; at < 5; ++at) {
    File::open(folder / "b.kiln", Access::read_write)->put(sample_record_at(at), nullptr);
    fs::rename(folder / "b.kiln", folder / "a.kiln");
    CHECK(file->find_record(sample_key(at)));
    CHECK(!file->find_record("first"));
    file->put(sample_record("later"), nullptr);
    CHECK(File::open(folder / "a.kiln", Access::read_only)->stats().records == 2);
  }
  faults::tally(17, 5, "overlays replaced while open");
}

TEST_CASE("fault 17: what takes the place of an open overlay is judged as when it is opened") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  const auto file = File::open(path, Access::read_write);
  file->put(sample_record("first"), nullptr);
  const auto other = sample_file(folder / "other.kiln");
  const auto before = bytes_of(other);

  fs::remove(path);
  fs::create_symlink(other, path);
  CHECK(contains(refusal([&] { file->put(sample_record("second"), nullptr); }), "it is a symbolic link"));
  CHECK(!file->find_record("key0"));
  CHECK(file->counters().read_failures == 1);
  CHECK(bytes_of(other) == before);

  fs::remove(path);
  write_bytes(path, std::string(300, 'n'));
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  CHECK(contains(refusal([&] { file->put(sample_record("second"), nullptr); }), "it is not a .kiln file"));
  CHECK(bytes_of(path) == std::string(300, 'n'));

  fs::remove(path);
  file->put(sample_record("second"), nullptr);
  CHECK(file->find_record("second"));
  faults::tally(17, 3, "overlays replaced by what may not be used");
}

}  // namespace
}  // namespace kiln::store
