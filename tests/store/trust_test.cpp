// Who may supply machine code: the owner's files, signed files, and nobody else.
#include "store/trust.hpp"

#include <stdlib.h>

#include "key_files.hpp"
#include "store/layers.hpp"
#include "store/signing.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// An exported file of two records and two cubins, in a folder that all users may write.
fs::path shared_base(const Folder& folder) {
  const auto path = folder / "shared/base.kiln";
  fs::create_directories(path.parent_path());
  const auto file = File::in_memory();
  for (const std::string name : {"one", "two"}) {
    const auto cubin = sample_cubin(name);
    file->put(sample_record(name), &cubin);
  }
  export_file(*file, path, {}, true);
  fs::permissions(path.parent_path(), fs::perms::all);
  return path;
}

/// Writes the file in a private folder, then lets all users write it.
template <class Work>
void before_it_is_shared(const fs::path& file, Work&& work) {
  fs::permissions(file.parent_path(), fs::perms::owner_all);
  work();
  fs::permissions(file.parent_path(), fs::perms::all);
}

void sign_with(const fs::path& file, const fs::path& key) {
  before_it_is_shared(file, [&] { sign(file, PrivateKey::read(key)); });
}

LayerSettings with_keys(const Folder& folder, const fs::path& base, TrustPolicy policy = TrustPolicy::owner) {
  return {.bases = {base}, .trust = policy, .key_folders = {folder / "keys"}};
}

bool supplies_code(Layers& layers) { return layers.find_cubin(digest_named("one")).has_value(); }

TEST_CASE("a signed base supplies machine code from a folder that anybody may write") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "release-2026");
  Layers before(with_keys(folder, base));
  CHECK(!supplies_code(before));
  CHECK(before.find_record("one"));
  CHECK(before.layers()[1].trust.starts_with("its folder"));
  CHECK(contains(before.layers()[1].trust, "nobody signed it"));
  sign_with(base, keys.secret);
  for (const auto policy : {TrustPolicy::owner, TrustPolicy::signed_files}) {
    Layers after(with_keys(folder, base, policy));
    CHECK(after.warnings().empty());
    CHECK(supplies_code(after));
    CHECK(after.layers()[1].trust == "signed by release-2026 (" + keys.open.string() + ")");
    CHECK(after.compilers() == std::vector<std::string>{"nvrtc 13.0"});
  }
}

TEST_CASE("the policy signed takes configurations only from an unsigned file of one's own, and all from the overlay") {
  const Folder folder;
  const auto path = folder / "own.kiln";
  const auto cubin = sample_cubin("one");
  File::open(path, Access::read_write)->put(sample_record("one"), &cubin);
  Layers as_base(with_keys(folder, path, TrustPolicy::signed_files));
  CHECK(as_base.find_record("one"));
  CHECK(!supplies_code(as_base));
  CHECK(as_base.compilers().empty());
  CHECK(as_base.layers()[1].trust == "the policy is signed, and nobody signed it");
  Layers as_overlay({.overlay = path, .trust = TrustPolicy::signed_files});
  CHECK(supplies_code(as_overlay));
  Layers under_owner(with_keys(folder, path));
  CHECK(supplies_code(under_owner));
}

TEST_CASE("the signature of an unknown key counts for nothing, and a warning says so") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "stranger");
  sign_with(base, keys.secret);
  const auto print = fingerprint(read_public_key(keys.open));
  fs::remove(keys.open);
  Layers layers(with_keys(folder, base));
  REQUIRE(layers.warnings().size() == 1);
  CHECK(contains(layers.warnings().front(), print));
  CHECK(layers.find_record("one"));
  CHECK(!supplies_code(layers));
  CHECK(contains(layers.layers()[1].trust, "an unknown one (fingerprint " + print + ")"));
}

TEST_CASE("a revoked key is trusted from no folder, whoever wrote the revocation") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "release");
  sign_with(base, keys.secret);
  auto settings = with_keys(folder, base);
  CHECK([&] {
    Layers layers(settings);
    return supplies_code(layers);
  }());
  fs::create_directories(folder / "other/revoked");
  fs::permissions(folder / "other/revoked", fs::perms::all);
  fs::copy(keys.open, folder / "other/revoked/leaked.pem");
  for (const bool first : {true, false}) {
    settings.key_folders = {folder / "keys", folder / "other"};
    if (first) std::swap(settings.key_folders[0], settings.key_folders[1]);
    Layers layers(settings);
    CHECK(!supplies_code(layers));
    CHECK(layers.find_record("one"));
    CHECK(contains(layers.layers()[1].trust, "the key leaked that signed it is revoked (" +
                                                 (folder / "other/revoked/leaked.pem").string() + ")"));
  }
  const auto second = make_keys(folder, "second");
  sign_with(base, second.secret);
  Layers both(settings);
  CHECK(supplies_code(both));
  CHECK(contains(both.layers()[1].trust, "signed by second"));
}

TEST_CASE("a file whose content, manifest or signature was changed is refused by name") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "release");
  sign_with(base, keys.secret);
  const auto good = bytes_of(base);
  const auto refused = [&](const char* change, std::string_view reason) {
    write_bytes(base, good);
    run_sql(base, change);
    Layers layers(with_keys(folder, base));
    REQUIRE(layers.warnings().size() == 1);
    CAPTURE(layers.warnings()[0]);
    CHECK(contains(layers.warnings()[0], "a base file is left out: '" + base.string() + "' is damaged: "));
    CHECK(contains(layers.warnings()[0], reason));
    CHECK(!layers.find_record("one"));
    CHECK(layers.layers()[1].trust == "it is refused");
  };
  refused("DELETE FROM record WHERE key = 'one'", "states 2 record rows and it holds 1");
  refused("UPDATE record SET digest = zeroblob(32) WHERE key = 'one'", "over its record rows differs");
  refused("UPDATE cubin SET digest = randomblob(32) WHERE id = 1", "over its cubin rows differs");
  refused("UPDATE manifest SET digest = randomblob(32) WHERE source = 'candidate'", "is not one over its manifest");
  refused("UPDATE manifest SET row_count = row_count + 1 WHERE source = 'candidate'", "is not one over its manifest");
  refused("UPDATE signature SET signature = randomblob(64)", "is not one over its manifest");
  refused("UPDATE signature SET signature = randomblob(63)", "is not one over its manifest");
  refused("UPDATE signature SET public_key = randomblob(31)", "names no Ed25519 key");
  refused("DELETE FROM manifest WHERE source = 'candidate'", "its manifest is not one of");
  refused("DELETE FROM manifest", "is not one over its manifest");
  refused("INSERT INTO manifest VALUES ('lease', 0, zeroblob(32))", "its manifest is not one of");
  refused(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 65) "
      "INSERT INTO signature SELECT randomblob(32), signature FROM signature, n",
      "signature");
}

TEST_CASE("a file that is sealed anew by somebody without the key supplies configurations only") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "release");
  sign_with(base, keys.secret);
  const auto evil = sample_cubin("one", 4000);
  before_it_is_shared(base, [&] { File::open(base, Access::read_write)->put_all({}, {&evil, 1}, Existing::replace); });
  const auto other = make_keys(folder, "other");
  sign_with(base, other.secret);
  fs::remove(other.open);
  Layers layers(with_keys(folder, base));
  CHECK(layers.find_record("one"));
  CHECK(!supplies_code(layers));
}

TEST_CASE("machine code that is swapped after the opening is not loaded, nor in a child of fork") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "release");
  sign_with(base, keys.secret);
  Layers layers(with_keys(folder, base));
  REQUIRE(supplies_code(layers));
  // Valid rows with valid digests, which any user can write.
  const auto evil = sample_cubin("one", 4000);
  const auto added = sample_cubin("three");
  const std::vector<CubinRow> cubins = {evil, added};
  before_it_is_shared(base, [&] { File::open(base, Access::read_write)->put_all({}, cubins, Existing::replace); });
  const auto guarded = [&] {
    return !supplies_code(layers) && !layers.find_cubin(digest_named("three")) &&
           layers.find_cubin(digest_named("two"));
  };
  CHECK(guarded());
  CHECK(layers.layers()[1].file->counters().quarantined == 2);
  CHECK(exit_status(in_child(guarded)) == 0);
  Layers again(with_keys(folder, base));
  CHECK(!again.find_cubin(digest_named("two")));  // the write removed the signature
}

TEST_CASE("a base under a folder that has become a link is not taken for what the link leads to") {
  const Folder folder;
  const auto path = folder / "deep/base.kiln";
  fs::create_directories(path.parent_path());
  const auto cubin = sample_cubin("one");
  File::open(path, Access::read_write)->put(sample_record("one"), &cubin);
  const auto file = File::open(path, Access::read_only);
  CHECK(judge_code(*file, {}).trusted);
  fs::rename(folder / "deep", folder / "moved");
  fs::create_directory_symlink(folder / "moved", folder / "deep");
  CHECK(contains(judge_code(*file, {}).why, "its path leads elsewhere"));
}

TEST_CASE("merging takes machine code from a signed file, and under the policy signed from no other") {
  const Folder folder;
  const auto base = shared_base(folder);
  const auto keys = make_keys(folder, "release");
  std::vector<std::string> warnings;
  const std::vector<fs::path> folders = {folder / "keys"};
  const CodeTrust trust{TrustPolicy::signed_files, KeyRing::read(folders, warnings)};
  const auto merged = [&](const CodeTrust& rule) {
    return merge_into(*File::open(base, Access::read_only), *File::in_memory(), rule);
  };
  CHECK(merged(trust).untrusted_cubins == 2);
  sign_with(base, keys.secret);
  CHECK(merged(trust).cubins == 2);
  CHECK(merged({}).untrusted_cubins == 2);  // no keys, and others may write its folder
  fs::permissions(base.parent_path(), fs::perms::owner_all);
  CHECK(merged({}).cubins == 2);
  CHECK(merged({TrustPolicy::signed_files, {}}).untrusted_cubins == 2);
  CHECK(warnings.empty());
}

TEST_CASE("the policy comes from the option, else from KILN_TRUST, else it is owner") {
  CHECK(exit_status(in_child([] {
          unsetenv("KILN_TRUST");
          if (trust_policy(std::nullopt) != TrustPolicy::owner) return false;
          setenv("KILN_TRUST", "", 1);
          if (trust_policy(std::nullopt) != TrustPolicy::owner) return false;
          setenv("KILN_TRUST", "signed", 1);
          return trust_policy(std::nullopt) == TrustPolicy::signed_files &&
                 trust_policy(TrustPolicy::owner) == TrustPolicy::owner;
        })) == 0);
  CHECK(exit_status(in_child([] {
          setenv("KILN_TRUST", "everyone", 1);
          return contains(refusal([] { trust_policy(std::nullopt); }),
                          "bad_input: KILN_TRUST is 'everyone', expected owner");
        })) == 0);
}

}  // namespace
}  // namespace kiln::store
