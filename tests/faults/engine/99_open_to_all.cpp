// Ops that all users may change, and a private key that they may read.
#include "faults/engine/fixture.hpp"
#include "store/key_files.hpp"

namespace kiln::faults {

TEST_CASE("fault 99: an op that all users may change draws a warning, from the command and from the library") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const auto overlay = tuned_overlay(folder);
  const auto warned = [&] {
    const std::string said = expect(0, "kiln" + op.templates() + "ops");
    const Machine machine;
    const Engine engine(op.options(overlay));
    const auto warnings = engine.warnings();
    const auto count = std::ranges::count_if(warnings, [](const std::string& each) {
      return contains(each, "the op 'scale' runs code that another user may have written");
    });
    CHECK(contains(said, "the op 'scale' runs code that another user may have written") == (count == 1));
    CHECK(contains(expect(0, "kiln --quiet" + op.templates() + "ops"), "another user") == false);
    return count == 1;
  };
  CHECK(!warned());
  for (const fs::path& each : {op.root(), op.root() / "scale", op.root() / "scale/op.toml"}) {
    CAPTURE(each.string());
    const auto before = fs::status(each).permissions();
    fs::permissions(each, fs::perms::others_write, fs::perm_options::add);
    CHECK(warned());
    fs::permissions(each, before);
  }
  fs::permissions(op.root(), fs::perms(01777));  // such as /tmp
  CHECK(!warned());
  tally(99, 5, "modes of an op's folders and files");
}

TEST_CASE("fault 99: a private key that others may read draws a warning, and signs") {
  const TemporaryFolder folder;
  const store::Folder keys;
  const auto mine = store::make_keys(keys, "mine");
  const std::string sign = "kiln cache sign " + tuned_overlay(folder).string() + " --key " + mine.secret.string();
  for (const unsigned mode : {0600U, 0400U, 0644U, 0640U, 0604U, 0620U}) {
    CAPTURE(mode);
    REQUIRE(chmod(mine.secret.c_str(), mode) == 0);
    const auto said = expect(0, sign);
    CHECK_MESSAGE(contains(said, "can be read or written by others (mode 0") == ((mode & 077U) != 0), said);
  }
  tally(99, 6, "modes of a private key");
}

}  // namespace kiln::faults
