#include "store/layers.hpp"

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

TEST_CASE("the overlay answers before the bases, and the bases in their order") {
  const Folder folder;
  const std::vector<fs::path> bases = {base_with(folder, "one.kiln", "both", 1),
                                       base_with(folder, "two.kiln", "both", 2)};
  File::open(bases[1], Access::read_write)->put(sample_record("second", 3), nullptr);
  Layers layers({.overlay = folder / "overlay.kiln", .bases = bases});
  CHECK(layers.warnings().empty());
  REQUIRE(layers.layers().size() == 3);
  CHECK(layers.find_record("both")->value.at_edge().cost_ns == 1);
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

TEST_CASE("a base may be text: its records serve, and a line that does not hold refuses all of it") {
  const Folder folder;
  const fs::path good = folder / "good.jsonl", bad = folder / "bad.jsonl";
  {
    std::ofstream text(good);
    export_text(*File::open(base_with(folder, "base.kiln", "key", 1), Access::read_only), text, {});
  }
  write_bytes(bad, bytes_of(good) + "{}\n");
  Layers layers({.bases = {good, bad}});
  CHECK(layers.find_record("key")->layer == 1);
  CHECK(!layers.layers()[1].trusted_for_code);
  CHECK(contains(only_warning(layers), bad.string() + ":2: "));
  CHECK(layers.layers()[2].file == nullptr);
}

TEST_CASE("no overlay path means memory, without a warning") {
  Layers layers(LayerSettings{});
  CHECK(layers.warnings().empty());
  layers.overlay().put(sample_record("key"), nullptr);
  CHECK(layers.find_record("key")->layer == 0);
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
  REQUIRE(layers.warnings().size() == 2);  // of the overlay and of the base
  for (const std::string& each : layers.warnings()) CHECK(contains(each, "belongs to user 65534"));
  CHECK(layers.find_record("key")->layer == 1);
  CHECK(!layers.find_cubin(digest_named("key")));
}

}  // namespace
}  // namespace kiln::store
