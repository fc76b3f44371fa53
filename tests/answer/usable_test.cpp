// A config of a record serves if it is legal, whether or not a tune would try it today.
#include <doctest/doctest.h>

#include <algorithm>

#include "answer/serving.hpp"
#include "near_fixture.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

TEST_CASE("a config that [search] has come to leave out still serves, and one that a constraint excludes does not") {
  manifest::Op op = rows_op();
  manifest::Implementation& fast = op.implementations.front();
  fast.search = {manifest::Expression::parse("vector >= 4 && threads >= 128", fast.symbols)};
  const Problem bucket = sized(64, 4096);
  const std::vector<manifest::Config> space = manifest::search_space({op, h200()}, fast, bucket);
  REQUIRE(std::ranges::find(space, manifest::Config{128, 8}) != space.end());
  REQUIRE(std::ranges::find(space, manifest::Config{64, 2}) == space.end());

  const Usable tuned = usable({op, h200()}, bucket, "fast", "threads=64 vector=2");
  CHECK(tuned.implementation == &fast);
  CHECK(tuned.config == manifest::Config{64, 2});
  CHECK(usable({op, h200()}, bucket, "fast", "threads=1024 vector=8").why_not.find("breaks the constraint") !=
        std::string::npos);

  const Usable fallback = default_for({op, h200()}, bucket);
  CHECK(fallback.implementation == &fast);
  CHECK(fallback.config == fast.default_config);
}

TEST_CASE("what no implementation can serve names the rule, and which implementations need it") {
  const manifest::Op attention =
      manifest::load_op(std::filesystem::path(KILN_SOURCE_DIR) / "templates/attention_forward");
  const Problem heads = manifest::make_problem(attention, std::vector<manifest::Setting>{{"batch", "1"},
                                                                                         {"queries", "64"},
                                                                                         {"keys", "64"},
                                                                                         {"heads", "7"},
                                                                                         {"key_heads", "4"},
                                                                                         {"head_dim", "64"},
                                                                                         {"value_dim", "64"}});
  CHECK(rules_broken({attention, h200()}, heads).find("mma need 'heads % key_heads == 0'") != std::string::npos);
  CHECK(default_for({attention, h200()}, heads).why_not.find("heads % key_heads == 0") != std::string::npos);
  const manifest::Op rotary = manifest::load_op(std::filesystem::path(KILN_SOURCE_DIR) / "templates/rotary");
  const Problem wide = manifest::make_problem(
      rotary, std::vector<manifest::Setting>{{"tokens", "64"}, {"heads", "4"}, {"dim", "64"}, {"rotary_dim", "128"}});
  CHECK(rules_broken({rotary, h200()}, wide).find("'rotary_dim <= dim'") != std::string::npos);
}
