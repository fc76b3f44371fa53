#include "store/layers.hpp"

#include <grp.h>
#include <stdlib.h>

#include <cstdlib>

#include "store/custody.hpp"
#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

fs::path base_with(const Folder& folder, const std::string& name, const std::string& key, double cost_ns) {
  const auto file = File::open(folder / name, Access::read_write);
  const auto cubin = sample_cubin(key);
  file->put(sample_record(key, cost_ns), &cubin);
  return folder / name;
}

std::string only_warning(const Layers& layers) {
  REQUIRE(layers.warnings().size() == 1);
  return layers.warnings().front();
}

/// Runs `work` as the user nobody in a child; true at once, saying so, where this user may not change to another.
template <class Work>
bool as_nobody(Work&& work) {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return true;
  }
  constexpr uid_t nobody = 65534;
  return exit_status(in_child([&] {
           return setgroups(0, nullptr) == 0 && setegid(nobody) == 0 && seteuid(nobody) == 0 && work();
         })) == 0;
}

TEST_CASE("the overlay answers before the bases, and the bases in their order") {
  const Folder folder;
  const std::vector<fs::path> bases = {base_with(folder, "one.kiln", "both", 1),
                                       base_with(folder, "two.kiln", "both", 2)};
  File::open(bases[1], Access::read_write)->put(sample_record("second", 3), nullptr);
  Layers layers({.overlay = folder / "overlay.kiln", .bases = bases});
  CHECK(layers.warnings().empty());
  REQUIRE(layers.layers().size() == 3);
  CHECK(layers.find_record("both")->value.cost_ns == 1);
  CHECK(layers.find_record("both")->layer == 1);
  CHECK(layers.find_record("second")->layer == 2);
  CHECK(!layers.find_record("none"));
  layers.overlay().put(sample_record("both", 9), nullptr);
  CHECK(layers.find_record("both")->layer == 0);
  CHECK(layers.records("rms_norm").size() == 4);
  CHECK(layers.records("rms_norm").front().layer == 0);
  CHECK(layers.find_cubin(digest_named("both"))->layer == 1);
  CHECK(layers.compilers() == std::vector<std::string>{"nvrtc 13.0"});
}

TEST_CASE("a base that others may write supplies records and no machine code") {
  const Folder folder;
  const std::vector<fs::path> bases = {base_with(folder, "base.kiln", "key", 1)};
  fs::permissions(bases[0], fs::perms::group_write, fs::perm_options::add);
  {
    Layers layers({.bases = bases});
    CHECK(layers.find_record("key"));
    CHECK(!layers.find_cubin(digest_named("key")));
    CHECK(layers.compilers().empty());
    CHECK(!layers.layers()[1].trusted_for_code);
    CHECK(contains(layers.layers()[1].trust, "can be written by others (mode 0620)"));
  }
  fs::permissions(bases[0], fs::perms::group_write, fs::perm_options::remove);
  CHECK(Layers({.bases = bases}).find_cubin(digest_named("key")));
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::add);
  Layers open_folder({.bases = bases});
  CHECK(!open_folder.find_cubin(digest_named("key")));
  CHECK(contains(open_folder.layers()[1].trust, "its folder"));
}

TEST_CASE("a base may be named by a symbolic link; what it leads to is judged") {
  const Folder folder;
  const std::vector<fs::path> bases = {folder / "link.kiln"};
  fs::create_symlink(base_with(folder, "base.kiln", "key", 1), bases[0]);
  Layers layers({.bases = bases});
  CHECK(layers.layers()[1].trusted_for_code);
  CHECK(layers.find_cubin(digest_named("key")));
}

TEST_CASE("a base that cannot be opened is left out and named, and the rest serve") {
  const Folder folder;
  const std::vector<fs::path> bases = {folder / "missing.kiln", base_with(folder, "base.kiln", "key", 1)};
  Layers layers({.bases = bases});
  CHECK(contains(only_warning(layers), "a base file is left out: '" + bases[0].string()));
  CHECK(layers.layers()[1].file == nullptr);
  CHECK(contains(layers.layers()[1].refused, "missing.kiln"));
  CHECK(layers.find_record("key")->layer == 2);
}

TEST_CASE("no overlay path means memory, without a warning") {
  Layers layers(LayerSettings{});
  CHECK(layers.warnings().empty());
  layers.overlay().put(sample_record("key"), nullptr);
  CHECK(layers.find_record("key")->layer == 0);
}

TEST_CASE("a damaged overlay is set aside, said once, and a new one begun") {
  const Folder folder;
  const auto path = base_with(folder, "overlay.kiln", "key", 1);
  const auto whole = bytes_of(path);
  int number = 0;
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, std::size_t{4096}, whole.size() - 1}) {
    const auto cut = whole.substr(0, length);
    write_bytes(path, cut);
    write_bytes(path.string() + "-journal", "not a journal");
    {
      Layers layers({.overlay = path});
      const auto aside = path.string() + ".damaged-" + std::to_string(++number);
      CHECK(contains(only_warning(layers), "it was set aside as '" + aside + "' and a new overlay begun"));
      CHECK(bytes_of(aside) == cut);
      CHECK(layers.layers()[0].refused.empty());
      layers.overlay().put(sample_record("key"), nullptr);
    }
    Layers again({.overlay = path});
    CHECK(again.warnings().empty());
    CHECK(again.find_record("key"));
  }
}

TEST_CASE("a foreign file in the overlay's place is not touched; memory serves") {
  const Folder folder;
  write_bytes(
      folder / "notes.txt",
      "my notes, which are longer than a header of one hundred bytes would be, so that all of it is read and judged");
  fs::permissions(folder / "notes.txt", fs::perms::owner_read | fs::perms::owner_write);
  const auto before = bytes_of(folder / "notes.txt");
  Layers layers({.overlay = folder / "notes.txt"});
  CHECK(contains(only_warning(layers), "is not a .kiln file; records of this process are kept in memory only"));
  layers.overlay().put(sample_record("key"), nullptr);
  CHECK(layers.find_record("key"));
  CHECK(bytes_of(folder / "notes.txt") == before);
}

TEST_CASE("an overlay that is a link, or that others may write, is refused with the reason") {
  const Folder folder;
  const auto real = base_with(folder, "real.kiln", "key", 1);
  const auto check = [](const fs::path& overlay, std::string_view reason) {
    Layers layers({.overlay = overlay});
    CAPTURE(only_warning(layers));
    CHECK(contains(only_warning(layers), reason));
    CHECK(contains(layers.layers()[0].refused, reason));
    CHECK(!layers.find_record("key"));
  };
  fs::create_symlink(real, folder / "symbolic.kiln");
  check(folder / "symbolic.kiln", "it is a symbolic link");
  fs::create_symlink(folder / "nowhere", folder / "dangling.kiln");
  check(folder / "dangling.kiln", "it is a symbolic link");
  fs::create_hard_link(real, folder / "hard.kiln");
  check(folder / "hard.kiln", "it has 2 names (hard links)");
  check(real, "it has 2 names (hard links)");
  fs::remove(folder / "hard.kiln");
  fs::permissions(real, fs::perms::group_write, fs::perm_options::add);
  check(real, "can be written by others (mode 0620)");
  fs::permissions(real, fs::perms::group_write, fs::perm_options::remove);
  fs::permissions(folder.path(), fs::perms::group_write, fs::perm_options::add);
  check(real, "its folder '" + folder.path().string() + "' can be written by others");
  check(folder / "new.kiln", "its folder");
  CHECK(!fs::exists(folder / "new.kiln"));
  fs::permissions(folder.path(), fs::perms::group_write, fs::perm_options::remove);
  CHECK(Layers({.overlay = real}).find_record("key"));
  CHECK(contains(refusal([&] { File::open(folder / "symbolic.kiln", Access::read_write); }), "no_permission"));
}

TEST_CASE("a folder that cannot be written, or a file of another user, leaves memory and one warning") {
  const Folder folder;
  const auto theirs = base_with(folder, "theirs.kiln", "key", 1);
  fs::permissions(theirs, fs::perms::others_read, fs::perm_options::add);
  fs::permissions(folder.path(), fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
  CHECK(as_nobody([&] {
    const std::vector<fs::path> bases = {theirs};
    Layers fresh({.overlay = folder / "new.kiln", .bases = bases});
    fresh.overlay().put(sample_record("mine"), nullptr);
    Layers existing({.overlay = theirs});
    return fresh.warnings().size() == 1 && contains(fresh.warnings()[0], "kept in memory only") &&
           fresh.find_record("mine") && fresh.find_record("key") &&
           fresh.find_cubin(digest_named("key")) &&  // root's base, which only root may write
           existing.warnings().size() == 1 && contains(existing.warnings()[0], "cannot be written");
  }));
  CHECK(!fs::exists(folder / "new.kiln"));
}

TEST_CASE("a base of another user than root supplies no machine code, and an overlay of theirs is not used") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give a file away");
    return;
  }
  const Folder folder;
  const auto path = base_with(folder, "base.kiln", "key", 1);
  REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
  const std::vector<fs::path> bases = {path};
  Layers layers({.overlay = path, .bases = bases});
  CHECK(contains(only_warning(layers), "belongs to user 65534"));
  CHECK(layers.find_record("key")->layer == 1);
  CHECK(!layers.find_cubin(digest_named("key")));
}

TEST_CASE("a base in a folder that this user may not write is read") {
  const Folder folder;
  const auto path = base_with(folder, "base.kiln", "key", 1);
  fs::permissions(path, fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  fs::permissions(folder.path(),
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  CHECK(as_nobody([&] {
    const auto file = File::open(path, Access::read_only);
    return file->find_record("key").has_value() && file->find_cubin(digest_named("key")).has_value();
  }));
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_CASE("the default overlay comes from KILN_CACHE, XDG_CACHE_HOME or HOME, and may be none") {
  CHECK(exit_status(in_child([] {
          setenv("KILN_CACHE", "/a/x.kiln", 1);
          setenv("XDG_CACHE_HOME", "/b", 1);
          setenv("HOME", "/c", 1);
          if (default_overlay() != "/a/x.kiln") return false;
          setenv("KILN_CACHE", "", 1);
          if (default_overlay() != "/b/kiln/overlay.kiln") return false;
          setenv("XDG_CACHE_HOME", "relative", 1);
          if (default_overlay() != "/c/.cache/kiln/overlay.kiln") return false;
          unsetenv("HOME");
          return default_overlay().empty() && Layers({.overlay = default_overlay()}).warnings().empty();
        })) == 0);
}

}  // namespace
}  // namespace kiln::store
