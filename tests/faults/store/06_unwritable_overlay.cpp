#include <stdlib.h>

#include "faults/store/samples.hpp"
#include "faults/store/users.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr auto readable = fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                          fs::perms::others_read | fs::perms::others_exec;

/// One warning, and all works from memory.
bool serves_from_memory(const fs::path& overlay, std::string_view words) {
  Layers layers({.overlay = overlay});
  layers.overlay().put(sample_record("mine"), nullptr);
  return layers.warnings().size() == 1 && contains(layers.warnings()[0], words) &&
         contains(layers.warnings()[0], "kept in memory only") && layers.find_record("mine");
}

TEST_CASE("fault 06: an overlay that this user may not write is replaced by memory, with one warning") {
  const Folder folder;
  const auto theirs = sample_file(folder / "theirs.kiln");
  fs::permissions(theirs, fs::perms::others_read, fs::perm_options::add);
  fs::permissions(folder.path(), readable);
  const auto before = bytes_of(theirs);
  CHECK(as_nobody([&] {
    return serves_from_memory(folder / "new.kiln", "cannot be made") &&
           serves_from_memory(folder / "deep" / "er" / "new.kiln", "cannot be made") &&
           serves_from_memory(theirs, "cannot be written") &&
           serves_from_memory("/proc/kiln/overlay.kiln", "cannot be made");
  }));
  CHECK(!fs::exists(folder / "new.kiln"));
  CHECK(bytes_of(theirs) == before);
  faults::tally(6, 4, "overlays that this user may not write");
}

TEST_CASE("fault 06: a base in a folder that this user may not write is read") {
  const Folder folder;
  const auto path = sample_file(folder / "base.kiln");
  fs::permissions(path, fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  fs::permissions(folder.path(),
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  CHECK(as_nobody([&] {
    const std::vector<fs::path> bases = {path};
    Layers layers({.bases = bases});  // root's, which only root may write
    return layers.warnings().empty() && layers.find_record("key0") && layers.find_cubin(digest_named("0"));
  }));
  fs::permissions(folder.path(), fs::perms::owner_all);
  faults::tally(6, 1, "bases in a folder that cannot be written");
}

TEST_CASE("fault 06: an overlay that becomes unwritable while it is open refuses writes and answers reads") {
  const Folder folder;
  CHECK(as_nobody([&] {
    const auto own = (access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                     ("kiln-own-" + std::to_string(getpid()));
    fs::create_directory(own);
    fs::permissions(own, fs::perms::owner_all);
    const auto file = File::open(own / "a.kiln", Access::read_write);
    file->put(sample_record("key"), nullptr);
    fs::permissions(own, fs::perms::owner_read | fs::perms::owner_exec);
    const auto said = refusal([&] { file->put(sample_record("other"), nullptr); });
    const bool right = !said.empty() && file->find_record("key") && file->counters().read_failures == 0;
    fs::permissions(own, fs::perms::owner_all);
    file->put(sample_record("other"), nullptr);
    const bool goes_on = file->find_record("other").has_value();
    fs::remove_all(own);
    return right && goes_on;
  }));
  faults::tally(6, 1, "folders that become unwritable");
}

TEST_CASE("fault 06: the default overlay comes from KILN_CACHE, XDG_CACHE_HOME or HOME, and without them is none") {
  CHECK(exit_status(in_child([] {
          setenv("KILN_CACHE", "/a/x.kiln", 1);
          setenv("XDG_CACHE_HOME", "/b", 1);
          setenv("HOME", "/c", 1);
          if (default_overlay() != "/a/x.kiln") return false;
          setenv("KILN_CACHE", "", 1);
          if (default_overlay() != "") return false;  // memory
          unsetenv("KILN_CACHE");
          if (default_overlay() != "/b/kiln/overlay.kiln") return false;
          setenv("XDG_CACHE_HOME", "relative", 1);
          if (default_overlay() != "/c/.cache/kiln/overlay.kiln") return false;
          unsetenv("HOME");
          Layers layers({.overlay = default_overlay()});
          return !default_overlay() && layers.warnings().size() == 1 && contains(layers.warnings()[0], "HOME") &&
                 contains(layers.not_kept(), "HOME");
        })) == 0);
  faults::tally(6, 1, "environments without a home");
}

}  // namespace
}  // namespace kiln::store
