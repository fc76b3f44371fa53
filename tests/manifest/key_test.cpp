#include "manifest/key.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

TEST_CASE("a device class may end with the link of a team, which only keys of a team's ops hold") {
  const std::string silicon = "sm_90/mp132/l2_62914560/smem_232448/bus_6144";
  const auto facts = DeviceFacts::from_device_class(silicon + "/nvlink");
  REQUIRE(facts);
  CHECK(facts->link == TeamLink::nvlink);
  CHECK(facts->device_class() == silicon);
  const Op alone = testing::scale_folder().parse();
  CHECK(facts->device_class_for(alone) == silicon);
  CHECK(DeviceFacts::from_device_class(silicon)->link == TeamLink::none);
  for (const char* bad : {"/", "/nvlink/", "/nvlink4", "nvlink", "/none"})
    CHECK(!DeviceFacts::from_device_class(silicon + bad));
  CHECK(is_of_class(silicon + "/pcie", silicon));
  CHECK(is_of_class(silicon, silicon));
  CHECK_FALSE(is_of_class(silicon, silicon + "/pcie"));
  CHECK_FALSE(is_of_class(silicon + "4/pcie", silicon));
}

TEST_CASE("a record key is canonical text that a person can read") {
  const Op op = testing::scale_folder().parse();
  Problem bucket;
  bucket.axes = {512, 4096};
  bucket.selections = {1, 0};
  CHECK(
      Bucket({op, testing::h200(), Regime::cold_l2}, bucket).key() ==
      "scale@3 | rows=pow2:512 cols=exact:4096 | dtype=f32 mode=plain | sm_90/mp132/l2_62914560/smem_232448/bus_6144 | cold");
  CHECK(Bucket({op, testing::h200(), Regime::hot_l2}, bucket).key().ends_with("| hot"));
}

TEST_CASE("fields are hashed with their lengths, so no two lists of fields agree") {
  CHECK(Hasher().field("ab").field("c").finish() != Hasher().field("a").field("bc").finish());
  CHECK(Hasher().field("abc").finish() != Hasher().field("abc").field("").finish());
  CHECK(Hasher().field(1).field(2).finish() != Hasher().field(2).field(1).finish());
  CHECK(Hasher().field("abc").finish() == Hasher().field("abc").finish());
}

TEST_CASE("the digest is SHA-256 over length and bytes") {
  // printf '\x03\0\0\0\0\0\0\0abc' | sha256sum
  CHECK(to_hex(Hasher().field("abc").finish()) == "ce91dc5eec0139adf091900d225971d6ad246a845bad791b5693a9d0d55dd391");
}

TEST_CASE("a copy of a begun hash goes on apart from it") {
  Hasher begun;
  begun.field("a");
  CHECK(Hasher(begun).field("b").finish() == Hasher().field("a").field("b").finish());
  const Digest copied = Hasher(begun).field("c").finish();
  CHECK(begun.field("c").finish() == copied);
}

TEST_CASE("a device class is read back, with what it leaves out taken from the architecture") {
  const auto facts = DeviceFacts::from_device_class("sm_90/mp132/l2_62914560/smem_232448/bus_6144");
  REQUIRE(facts);
  CHECK(facts->values == testing::h200().values);
  CHECK(facts->device_class() == testing::h200().device_class());
  for (const char* bad :
       {"", "sm_90", "sm_90/mp132/l2_62914560/smem_232448/bus_6144 ", "sm_090/mp132/l2_62914560/smem_232448/bus_6144",
        "sm_90/mp-1/l2_62914560/smem_232448/bus_6144", "sm_90/mp99999999999999999999/l2_1/smem_1/bus_1"}) {
    CAPTURE(bad);
    CHECK(!DeviceFacts::from_device_class(bad));
  }
}
