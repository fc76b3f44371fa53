#include "faults/skip.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// Not used, with this reason, and not changed.
void check_refused_overlay(const fs::path& overlay, std::string_view reason) {
  const auto before = bytes_of(overlay);
  Layers layers({.overlay = overlay});
  REQUIRE(layers.warnings().size() == 1);
  CAPTURE(layers.warnings()[0]);
  CHECK(contains(layers.warnings()[0], reason));
  CHECK(contains(layers.layers()[0].refused, reason));
  CHECK(!layers.find_record("key0"));
  layers.overlay().put(sample_record("mine"), nullptr);
  CHECK(layers.find_record("mine"));
  CHECK(bytes_of(overlay) == before);
  faults::tally(18, 1, "overlays that others could have written");
}

TEST_CASE("fault 18: an overlay that is a symbolic or a hard link is refused with the reason") {
  const Folder folder;
  const auto real = sample_file(folder / "real.kiln");
  fs::create_symlink(real, folder / "symbolic.kiln");
  check_refused_overlay(folder / "symbolic.kiln", "it is a symbolic link");
  fs::create_symlink(folder / "nowhere", folder / "dangling.kiln");
  check_refused_overlay(folder / "dangling.kiln", "it is a symbolic link");
  CHECK(!fs::exists(folder / "nowhere"));
  fs::create_hard_link(real, folder / "hard.kiln");
  check_refused_overlay(folder / "hard.kiln", "it has 2 names (hard links)");
  check_refused_overlay(real, "it has 2 names (hard links)");
  CHECK(contains(refusal([&] { File::open(folder / "symbolic.kiln", Access::read_write); }), "no_permission"));
}

TEST_CASE("fault 18: an overlay that others may write, itself or its folder, is refused with the reason") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(path, others, fs::perm_options::add);
    check_refused_overlay(path, "can be written by others (mode 06");
    fs::permissions(path, others, fs::perm_options::remove);
    fs::permissions(folder.path(), others, fs::perm_options::add);
    check_refused_overlay(path, "its folder '" + folder.path().string() + "' can be written by others");
    check_refused_overlay(folder / "new.kiln", "its folder");
    CHECK(!fs::exists(folder / "new.kiln"));
    fs::permissions(folder.path(), others, fs::perm_options::remove);
  }
  CHECK(Layers({.overlay = path}).find_record("key0"));
}

TEST_CASE("fault 18: an overlay, or its folder, of another user is refused with the reason") {
  if (geteuid() != 0) return faults::skip("only root can give a file away");
  constexpr uid_t nobody = 65534;
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  REQUIRE(chown(path.c_str(), nobody, nobody) == 0);
  check_refused_overlay(path, "belongs to user 65534");
  REQUIRE(chown(path.c_str(), 0, 0) == 0);
  REQUIRE(chown(folder.path().c_str(), nobody, nobody) == 0);
  check_refused_overlay(path, "belongs to user 65534");
  REQUIRE(chown(folder.path().c_str(), 0, 0) == 0);
}

}  // namespace
}  // namespace kiln::store
