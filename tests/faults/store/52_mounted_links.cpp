// A file as Kubernetes mounts configuration: FILE -> ..data/FILE, ..data -> ..DATE, in a folder that all may write.
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/custody.hpp"
#include "store/layers.hpp"
#include "store/signing.hpp"
#include "store/verify.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

struct Mounted {
  Mounted() {
    fs::create_directory(mount / "..2026_11_23");
    sample_file(mount / "..2026_11_23" / "base.kiln");
    chmod((mount / "..2026_11_23" / "base.kiln").c_str(), 0644);
    fs::create_directory_symlink("..2026_11_23", mount / "..data");
    fs::create_symlink("..data/base.kiln", file);
    chmod((mount / "..2026_11_23").c_str(), 0755);
    chmod(mount.c_str(), 01777);
  }
  const Folder folder;
  const fs::path mount = folder.path();
  const fs::path file = mount / "base.kiln";
};

}  // namespace

TEST_CASE("fault 52: a base behind symbolic links is read, verified and asked for its signatures alike") {
  const Mounted mounted;
  CHECK(File::open(mounted.file, Access::read_only)->stats().records == 3);
  Layers layers({.bases = {mounted.file}});
  CHECK(layers.warnings().empty());
  CHECK(layers.find_record("key1"));
  CHECK(layers.layers()[1].trusted_for_code);
  const auto found = verify(mounted.file);
  CHECK(found.is_sound());
  CHECK(found.notes.size() == 1);  // that it is not sealed
  CHECK(signature_states(mounted.file, {}).empty());
  faults::tally(52, 4, "readings of a base behind links");
}

TEST_CASE("fault 52: after the links were turned to a newer file, that one is read") {
  const Mounted mounted;
  const auto before = File::open(mounted.file, Access::read_only);
  fs::create_directory(mounted.mount / "..2026_11_24");
  sample_file(mounted.mount / "..2026_11_24" / "base.kiln", 5);
  fs::create_directory_symlink("..2026_11_24", mounted.mount / "..new");
  fs::rename(mounted.mount / "..new", mounted.mount / "..data");
  CHECK(before->find_record("key1"));
  CHECK(File::open(mounted.file, Access::read_only)->stats().records == 5);
  CHECK(verify(mounted.file).is_sound());
  faults::tally(52, 2, "readings of a base whose links were turned");
}

TEST_CASE("fault 52: links that lead nowhere or in a circle are refused by the name that was given") {
  const Folder folder;
  fs::create_symlink("nowhere", folder / "nowhere.kiln");
  fs::create_symlink("circle.kiln", folder / "circle.kiln");
  for (const char* name : {"nowhere.kiln", "circle.kiln"}) {
    CHECK(contains(refusal([&] { verify(folder / name); }), name));
    CHECK(contains(refusal([&] { File::open(folder / name, Access::read_only); }), name));
  }
  faults::tally(52, 4, "links that lead nowhere");
}

}  // namespace kiln::store
