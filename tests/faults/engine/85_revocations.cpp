// What `kiln cache verify --require-signature` says where a revocation cannot be read.
#include "faults/engine/fixture.hpp"
#include "store/key_files.hpp"

namespace kiln::faults {

TEST_CASE("fault 85: --require-signature fails where a revocation cannot be read, and where it has no .pem ending") {
  const TemporaryFolder folder;
  const store::Folder keys;
  const auto mine = store::make_keys(keys, "mine"), another = store::make_keys(keys, "another");
  const std::string file = (folder / "out.kiln").string();
  expect(0, "kiln cache export " + tuned_overlay(folder).string() + " -o " + file);
  expect(0, "kiln cache sign " + file + " --key " + mine.secret.string());
  const std::string verify =
      "kiln cache verify " + file + " --require-signature --trusted-keys " + (keys / "keys").string();
  expect(0, verify);
  fs::create_directory(keys / "keys/revoked");
  write(keys / "keys/revoked/README", "no key");
  CHECK(contains(expect(1, verify), "a key may be revoked by what cannot be read"));
  CHECK(contains(expect(1, "kiln --json --quiet" + verify.substr(4)), "\"unread_revocations\":[\"the keys of"));
  fs::remove(keys / "keys/revoked/README");
  fs::copy_file(another.open, keys / "keys/revoked/another");
  expect(0, verify);
  fs::copy_file(mine.open, keys / "keys/revoked/mine");
  CHECK(contains(expect(1, verify), "by a key that is revoked"));
  tally(85, 5, "verifications beside revocations");
}

}  // namespace kiln::faults
