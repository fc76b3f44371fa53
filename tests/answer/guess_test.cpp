// The configs that the model chooses for the sizes of a bucket.
#include "answer/guess.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "answer/model.hpp"
#include "manifest/catalogue.hpp"
#include "near_fixture.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

namespace {

const manifest::Op& built_in(const char* name) {
  static const manifest::Catalogue ops{std::vector<std::filesystem::path>{}};
  return ops[*ops.find(name)];
}

const manifest::Op& gemm() { return built_in("gemm"); }

Problem gemm_of(const std::string& sizes) {
  return *manifest::parse_bucket(gemm(),
                                 sizes +
                                     " dtype=bf16 w_dtype=bf16 out=bf16 layout=nt activation=none residual=none "
                                     "scaling=none accumulate=no");
}

double expected(const Problem& at, const manifest::Variant& of) { return estimate({gemm(), h200()}, of, at).ns; }

}  // namespace

TEST_CASE("guesses cover a bucket, each near the fastest that is expected at the upper end of its sizes") {
  const Problem bucket = gemm_of("m=1024 n=4096 k=4096");
  const auto guesses = guesses_for({{gemm(), h200(), Regime::cold_l2}, bucket});
  REQUIRE(guesses.size() > 1);
  std::int64_t next = 513;
  std::set<manifest::Config> configs;
  for (const Guess& each : guesses) {
    const Problem& at = each.region.high;
    CHECK(each.region.low.axes[0] == next);
    next = at.axes[0] + 1;
    CHECK_FALSE(each.of.broken_constraint({gemm(), h200()}, at).has_value());
    CHECK(expected(at, each.of) < 1.2 * fastest_expected({gemm(), h200(), Regime::cold_l2}, at, at).ns);
    configs.insert(each.of.config);
  }
  CHECK(next == 1025);
  CHECK(configs.size() <= 6);
}

TEST_CASE("a winner serves the sizes at which the model expects it to be about as fast, and no others") {
  const Problem bucket = gemm_of("m=1024 n=4096 k=4096");
  const Guess last = guesses_for({{gemm(), h200(), Regime::cold_l2}, bucket}).back();
  // A config that the model does not tell apart, and one with tiles that are far too small.
  manifest::Variant sibling = last.of, small = last.of;
  for (std::size_t i = 0; i < sibling.config.size(); ++i) {
    const std::string& name = sibling.implementation->parameters[i].name;
    if (name == "group") sibling.config[i] = sibling.config[i] == 8 ? 4 : 8;
    if (name == "tile_m" || name == "tile_n") small.config[i] = 64;
  }
  REQUIRE(expected(bucket, sibling) == expected(bucket, last.of));
  REQUIRE(expected(bucket, small) > 1.3 * expected(bucket, last.of));
  const auto guesses = guesses_for({{gemm(), h200(), Regime::cold_l2}, bucket}, std::vector{sibling, small});
  CHECK(guesses.back().of == sibling);
  CHECK(guesses.back().has_won);
  for (const Guess& each : guesses) CHECK_FALSE(each.of == small);
}

TEST_CASE("a parameter is modelled where a grid or the model reads it") {
  const manifest::Op op = rows_op();
  CHECK(modelled_parameters(op, op.implementations.front()) == std::vector<bool>{true, true});
  const manifest::Op silent = rows_op(false);
  CHECK(modelled_parameters(silent, silent.implementations.front()) == std::vector<bool>{true, false});
}

// Timed on an H100, where the default took 1.16 to 1.37 times as long as tiles of all heads of a group.
TEST_CASE("prompts without a record have the heads of a group in one tile") {
  const manifest::Op& op = built_in("attention_forward");
  const manifest::Implementation& wgmma = *op.find("wgmma");
  const auto heads_of_tile = static_cast<std::size_t>(
      std::ranges::find(wgmma.parameters, "heads_of_tile", &manifest::Parameter::name) - wgmma.parameters.begin());
  struct Prompt {
    std::string sizes;
    const char* layout;
    std::int64_t heads;
  };
  for (const Prompt& prompt : std::vector<Prompt>{
           {"batch=8 queries=1024 keys=1024 heads=32 key_heads=8 head_dim=128 value_dim=128", "dense", 4},
           {"batch=1 queries=16384 keys=16384 heads=32 key_heads=8 head_dim=128 value_dim=128", "dense", 4},
           {"batch=8 queries=8192 keys=8192 heads=32 key_heads=8 head_dim=128 value_dim=128", "packed", 4},
           {"batch=2 queries=4096 keys=4096 heads=64 key_heads=8 head_dim=64 value_dim=64", "dense", 8}}) {
    CAPTURE(prompt.sizes);
    const Problem bucket =
        *manifest::parse_bucket(op, prompt.sizes + " dtype=bf16 out_dtype=bf16 layout=" + prompt.layout +
                                        " mask=causal soft_cap=none sinks=none alibi=none bias=none dropout=none");
    for (const Guess& each : guesses_for({{op, h200(), Regime::cold_l2}, bucket})) {
      CHECK(each.of.implementation == &wgmma);
      CHECK(each.of.config.at(heads_of_tile) == prompt.heads);
    }
  }
}
