// An overlay that its user may read and not write, as in an image that was deployed.
#include "faults/store/samples.hpp"
#include "faults/store/users.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// Its rows serve beside those of this process's memory, under one warning, and nothing is said to be kept.
bool serves_both(const fs::path& overlay) {
  Layers layers({.overlay = overlay});
  const Record mine = sample_record("mine");
  layers.put_all({&mine, 1}, {});
  return layers.warnings().size() == 1 && contains(layers.warnings()[0], "cannot be written") &&
         contains(layers.warnings()[0], "read as a base's") && layers.find_record("mine") &&
         layers.find_record("key0") && layers.find_cubin(digest_named("0")) &&
         contains(layers.not_kept(), "cannot be written") && !layers.keeps("mine");
}

/// Nothing of it serves, under one warning.
bool serves_nothing(const fs::path& overlay) {
  Layers layers({.overlay = overlay});
  return layers.warnings().size() == 1 && !contains(layers.warnings()[0], "base") && !layers.find_record("key0") &&
         layers.layers().size() == 1;
}

}  // namespace

TEST_CASE("fault 57: an overlay that may be read and not written serves what it holds") {
  const Folder folder;
  const auto image = sample_file(folder / "image.kiln"), cut = sample_file(folder / "cut.kiln");
  fs::resize_file(cut, fs::file_size(cut) - 4096);
  const auto open_to_all = sample_file(folder / "open.kiln");
  constexpr auto all_read = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read;
  for (const auto& path : {image, cut}) fs::permissions(path, all_read);
  fs::permissions(open_to_all, all_read | fs::perms::group_write);
  fs::create_symlink(image, folder / "link.kiln");
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  const auto before = bytes_of(image), half = bytes_of(cut);
  CHECK(as_nobody([&] {
    fs::current_path(folder.path());
    return serves_both(image) && serves_both("image.kiln") && serves_nothing(cut) && serves_nothing(open_to_all) &&
           serves_nothing(folder / "link.kiln") && serves_nothing(folder / "missing.kiln");
  }));
  CHECK(bytes_of(image) == before);
  CHECK(bytes_of(cut) == half);
  faults::tally(57, 6, "overlays that may not be written");
}

}  // namespace kiln::store
