// What stands in for a record that is missing, and how much slower that is expected to be. No device, no machine code.
#include "engine/lookup.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "engine/explain.hpp"
#include "tune/model.hpp"
#include "tune/near_fixture.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::tune::testing;

namespace {

constexpr const char* h100_class = "sm_90/mp132/l2_52428800/smem_232448/bus_5120";
constexpr const char* a100_class = "sm_80/mp108/l2_41943040/smem_166912/bus_5120";

double modelled(const spec::Op& op, const Problem& bucket, const spec::Config& config) {
  return tune::estimate(op, op.implementations.front(), bucket, h200(), config).ns;
}

// An op, and a file in memory that holds records of it.
struct Shelf {
  explicit Shelf(bool with_model = true) : op(rows_op(with_model)) {}
  void put(const Problem& bucket, const std::string& config, double cost_ns, const char* device_class = h200_class) {
    layers.put_all(std::vector{record_of(op, bucket, config, cost_ns, device_class)}, {});
  }
  void split(const Problem& bucket, std::int64_t edge, const std::string& config, double cost_ns) {
    Problem at = bucket;
    at.axes[0] = edge;
    store::Record record = record_of(op, at, config, cost_ns);
    record.key = spec::refined_key(spec::record_key(op, bucket, h200(), Regime::cold_l2), "rows", edge);
    layers.put_all(std::vector{record}, {});
  }
  Lookup at(const Problem& problem) { return look_up(op, problem, h200(), Regime::cold_l2, layers); }
  Explanation explained(const Problem& problem) {
    jit::CompilePool pool(1);
    tune::Cubins cubins(layers, pool);
    return explain(op, problem, h200(), Regime::cold_l2, "sm_90a", layers, cubins);
  }
  spec::Op op;
  store::Layers layers{{}};
};

bool library_is_here() { return !jit::library_identity("cublaslt").empty(); }

// With another implementation, `vendor`, which is `fast` as a library would compute it. Without a device no library is asked, so that
// `vendor` can serve; `gone`, which the op does not declare, never can.
struct VendorShelf : Shelf {
  VendorShelf() : Shelf(false) {
    spec::Implementation vendor = op.implementations.front();
    vendor.name = "vendor";
    vendor.library = "cublaslt";
    op.implementations.push_back(std::move(vendor));
  }
  std::string key_of(const Problem& bucket) const { return spec::record_key(op, bucket, h200(), Regime::cold_l2); }
  void put(const std::string& key, const Problem& at, const char* implementation, const spec::Config& config,
           double cost_ns, bool stale = false) {
    const spec::Implementation& like = op.implementations.front();
    store::Record record = record_of(op, at, spec::to_string(like, config), cost_ns);
    record.key = key;
    record.implementation = implementation;
    const spec::Implementation* declared = op.find(implementation);
    if (declared != nullptr && declared->is_library())
      record.provenance.compiler = jit::library_identity(declared->library);  // this very version, where there is one
    if (declared != nullptr && !stale) record.source_digest = present_source(op, *declared, at, h200(), config);
    layers.put_all(std::vector{record}, {});
  }
  void put(const Problem& bucket, const char* winner, bool stale_runner_up = false) {
    put(key_of(bucket), bucket, winner, {256, 4}, 9000);
    put(spec::runner_up_key(key_of(bucket)), bucket, "fast", {128, 2}, 10000, stale_runner_up);
  }
};

}  // namespace

TEST_CASE("the nearest record is the one fewest doublings away, not the one of the same volume") {
  Shelf shelf(false);
  shelf.put(sized(4096, 64), "threads=32 vector=2", 1000);
  shelf.put(sized(256, 4096), "threads=256 vector=4", 9000);
  const Lookup found = shelf.at(sized(64, 4096));  // 2^18 elements, as many as the first has
  CHECK(found.origin == Origin::nearest);
  CHECK(found.config == spec::Config{256, 4});
  CHECK(found.distance == 2);
  CHECK(found.cost_ns == 9000);
  CHECK(found.why ==
        "no usable record for this bucket; the nearest is rows=256 cols=4096 dtype=f32, 2.0 doublings away");
}

TEST_CASE("of records that lie about as near, the one expected to be fastest here serves") {
  const Problem small = sized(32, 4096), large = sized(128, 4096);
  for (const bool small_is_better : {false, true}) {
    CAPTURE(small_is_better);
    Shelf shelf;
    shelf.put(small, "threads=1024 vector=1", modelled(shelf.op, small, {1024, 1}) * (small_is_better ? 0.2 : 5));
    shelf.put(large, "threads=256 vector=4", modelled(shelf.op, large, {256, 4}));
    CHECK((shelf.at(sized(64, 4096)).config == spec::Config{1024, 1}) == small_is_better);
    // Two doublings further, nothing is expected of a record: the near one serves.
    Shelf farther;
    farther.put(small, "threads=1024 vector=1", modelled(farther.op, small, {1024, 1}) * (small_is_better ? 0.2 : 5));
    farther.put(sized(1024, 4096), "threads=256 vector=4", modelled(farther.op, sized(1024, 4096), {256, 4}));
    CHECK(farther.at(sized(64, 4096)).config == spec::Config{1024, 1});
  }
}

TEST_CASE("a near record must be legal at the size that is asked for, not at its bucket's edge alone") {
  Shelf shelf(false);
  shelf.put(sized(32, 4096), "threads=256 vector=8", 1000);
  shelf.put(sized(1024, 4096), "threads=128 vector=4", 1000);
  CHECK(shelf.at(sized(64, 4096)).config == spec::Config{256, 8});
  CHECK(shelf.at(sized(63, 4096)).config == spec::Config{128, 4});
}

TEST_CASE("this device's records serve before any other's, then those of the most similar device") {
  Shelf shelf(false);
  shelf.put(sized(64, 4096), "threads=64 vector=4", 1000, a100_class);
  CHECK(shelf.at(sized(64, 4096)).config == spec::Config{64, 4});
  shelf.put(sized(64, 4096), "threads=128 vector=4", 1000, h100_class);
  const Lookup similar = shelf.at(sized(64, 4096));
  CHECK(similar.origin == Origin::nearest);
  CHECK(similar.config == spec::Config{128, 4});
  CHECK(similar.why.find(std::string(" of ") + h100_class) != std::string::npos);
  shelf.put(sized(4096, 4096), "threads=512 vector=4", 1000);
  CHECK(shelf.at(sized(64, 4096)).config == spec::Config{512, 4});
}

TEST_CASE("where no record is near, what the model expects to be fastest stands in") {
  Shelf shelf;
  shelf.put(sized(64, 8192), "threads=1024 vector=8", 1000);  // longer than the row that is asked for
  const Lookup guess = shelf.at(sized(63, 4096));
  CHECK(guess.origin == Origin::model);
  CHECK(guess.cost_ns == 0);
  REQUIRE(guess.implementation != nullptr);
  const spec::Implementation& fast = *guess.implementation;
  CHECK_FALSE(spec::broken_constraint(shelf.op, fast, sized(63, 4096), h200(), guess.config).has_value());
  CHECK_FALSE(spec::broken_constraint(shelf.op, fast, sized(64, 4096), h200(), guess.config).has_value());
  double best = std::numeric_limits<double>::infinity();
  for (const spec::Config& config : spec::search_space(shelf.op, fast, sized(64, 4096), h200()))
    if (config[1] < 8) best = std::min(best, modelled(shelf.op, sized(64, 4096), config));
  CHECK(modelled(shelf.op, sized(64, 4096), guess.config) == best);
  CHECK(best < 0.9 * modelled(shelf.op, sized(64, 4096), fast.default_config));
}

TEST_CASE("a record that is far away gives way to the model where that promises much more") {
  Shelf shelf;
  shelf.put(sized(1, 4096), "threads=32 vector=1", 1000);
  CHECK(shelf.at(sized(4, 4096)).origin == Origin::nearest);
  const Lookup far = shelf.at(sized(64, 4096));
  CHECK(far.origin == Origin::model);
  CHECK(far.why.find("the nearest record, rows=1 cols=4096 dtype=f32, is 6.0 doublings away; ") == 0);
  // What the model expects to be about as fast goes on serving.
  Shelf good;
  good.put(sized(1, 4096), spec::to_string(*far.implementation, far.config), 1000);
  CHECK(good.at(sized(64, 4096)).origin == Origin::nearest);
}

TEST_CASE("where the model has nothing to say, or nothing better, the default stands in") {
  Shelf silent(false);
  const Lookup unknown = silent.at(sized(64, 4096));
  CHECK(unknown.origin == Origin::default_);
  CHECK(unknown.why == "no record is near and no config of 'rows' has an estimate; the op's first legal default");
  Shelf shelf;
  const Lookup shortest = shelf.at(sized(2, 32));  // a row as long as the default's threads
  CHECK(shortest.origin == Origin::default_);
  CHECK(shortest.why ==
        "no record is near and the default is expected to be as fast as any; the op's first legal default");
}

TEST_CASE("a look-up that wants no stand-in gets none") {
  Shelf shelf;
  shelf.put(sized(32, 4096), "threads=256 vector=4", 1000);
  const Lookup found = look_up(shelf.op, sized(64, 4096), h200(), Regime::cold_l2, shelf.layers, false);
  CHECK(found.implementation == nullptr);
  CHECK(found.miss == Miss::absent);
}

TEST_CASE("a hit is expected to take a tuned config's time") {
  Shelf shelf;
  shelf.put(sized(64, 4096), "threads=256 vector=4", 1000);
  CHECK(shelf.explained(sized(64, 4096)).expected_slowdown == 1);
}

TEST_CASE("a near record is expected to be as slow as winners were in buckets as far from their own") {
  Shelf shelf;
  // Each bucket has a winner of its own, which takes 1.3 times the best time in any other.
  const char* winners[] = {"threads=128 vector=4", "threads=256 vector=4", "threads=512 vector=4",
                           "threads=1024 vector=4"};
  for (int i = 0; i < 4; ++i) {
    store::Record record = record_of(shelf.op, sized(16 << i, 4096), winners[i], 1000);
    record.baseline_ns = 3500;
    for (int each = 0; each < 4; ++each)
      record.candidates.push_back(candidate_of(winners[each], each == i ? 1000 : 1300));
    shelf.layers.put_all(std::vector{record}, {});
  }
  const Explanation stand_in = shelf.explained(sized(256, 4096));
  CHECK(stand_in.origin == Origin::nearest);
  CHECK(stand_in.expected_slowdown == doctest::Approx(1.3));
  CHECK(stand_in.miss == "absent");
}

TEST_CASE("without candidates the model says how much slower a near record is") {
  Shelf shelf;
  shelf.put(sized(32, 4096), "threads=32 vector=1", 1000);
  const Explanation stand_in = shelf.explained(sized(64, 4096));
  CHECK(stand_in.origin == Origin::nearest);
  CHECK(stand_in.expected_slowdown > 1.1);
}

TEST_CASE("a default is expected to be as slow as it was elsewhere; of what was never timed nothing is said") {
  Shelf shelf(false);
  CHECK(shelf.explained(sized(64, 4096)).expected_slowdown == 0);
  store::Record record = record_of(shelf.op, sized(64, 8192), "threads=1024 vector=8", 1000);
  record.baseline_ns = 2500;
  shelf.layers.put_all(std::vector{record}, {});
  const Explanation stand_in = shelf.explained(sized(64, 4096));
  CHECK(stand_in.origin == Origin::default_);
  CHECK(stand_in.expected_slowdown == 2.5);
  Shelf guessing;
  const Explanation guess = guessing.explained(sized(64, 4096));
  CHECK(guess.origin == Origin::model);
  CHECK(guess.expected_slowdown == 0);
}

TEST_CASE("a bucket that is split answers by the smallest edge that covers the size, and explain says so") {
  Shelf shelf(false);
  const Problem bucket = sized(1024, 4096);
  shelf.put(bucket, "threads=256 vector=4", 9000);
  shelf.split(bucket, 700, "threads=128 vector=2", 5000);
  shelf.split(bucket, 600, "threads=64 vector=1", 4000);
  const Lookup whole = shelf.at(sized(520, 4096));
  CHECK(whole.config == spec::Config{256, 4});
  REQUIRE(whole.refinements.size() == 2);
  CHECK(whole.refinements[0].edge == 600);
  CHECK(part_at(shelf.op, whole, sized(600, 4096)).config == spec::Config{64, 1});
  CHECK(part_at(shelf.op, whole, sized(601, 4096)).config == spec::Config{128, 2});
  CHECK(part_at(shelf.op, whole, sized(701, 4096)).config == spec::Config{256, 4});
  const Explanation lower = shelf.explained(sized(601, 4096));
  CHECK(lower.config == "threads=128 vector=2");
  CHECK(lower.cost_ns == 5000);
  CHECK(lower.origin == Origin::overlay);
  CHECK(lower.bucket == "rows=1024 cols=4096 dtype=f32");
  CHECK(lower.key.ends_with(" | cold | rows<=700"));
  CHECK(lower.why.starts_with(
      "the bucket is split at rows=600, rows=700; the record of its lower part, up to rows=700, serves"));
  const Explanation upper = shelf.explained(sized(1000, 4096));
  CHECK(upper.config == "threads=256 vector=4");
  CHECK(upper.why.find("the bucket's own record serves above") != std::string::npos);
}

TEST_CASE("a split that says nothing about its bucket, or cannot serve there, is left out and counted") {
  Shelf shelf(false);
  const Problem bucket = sized(1024, 4096);
  shelf.put(bucket, "threads=256 vector=4", 9000);
  shelf.split(bucket, 512, "threads=128 vector=2", 1);   // all of it below the bucket
  shelf.split(bucket, 1024, "threads=128 vector=2", 1);  // the whole bucket
  shelf.split(bucket, 601, "threads=256 vector=8", 1);   // not legal at its edge
  shelf.split(bucket, 602, "threads=7 vector=8", 1);     // not declared
  const Lookup found = shelf.at(sized(520, 4096));
  CHECK(found.refinements.empty());
  CHECK(found.unusable_refinements == 4);
  CHECK(shelf.explained(sized(520, 4096)).config == "threads=256 vector=4");
}

TEST_CASE("a record that cannot serve gives way to its runner-up, and that is a hit") {
  const Problem bucket = sized(1024, 4096);
  for (const bool stale : {false, true}) {
    CAPTURE(stale);
    VendorShelf shelf;
    shelf.put(bucket, "gone", stale);
    const Lookup found = shelf.at(sized(1000, 4096));
    CHECK(found.origin == Origin::overlay);
    CHECK_FALSE(found.miss);
    CHECK(found.implementation->name == "fast");
    CHECK(found.config == spec::Config{128, 2});
    CHECK(found.cost_ns == 10000);
    CHECK(found.stale == stale);
    REQUIRE(found.passed_over);
    CHECK(found.passed_over->implementation == "gone");
    const Explanation explained = shelf.explained(sized(1000, 4096));
    CHECK(explained.origin == Origin::overlay);
    CHECK(explained.expected_slowdown == 1);
    CHECK(explained.why == std::string("the record's runner-up serves: gone won with 9.00 us and cannot serve (its "
                                       "implementation 'gone' is not declared by the op); this is the fastest of the "
                                       "same tune without a library") +
                               (stale ? ", tuned from other sources, and serves until the bucket is tuned again" : ""));
  }
}

TEST_CASE("beside a library's record stands its runner-up, whose age counts apart") {
  const Problem bucket = sized(1024, 4096);
  VendorShelf fresh, stale, own;
  fresh.put(bucket, "vendor");
  stale.put(bucket, "vendor", true);
  own.put(bucket, "fast");
  const Lookup found = fresh.at(bucket);
  CHECK(found.implementation->name == "vendor");
  CHECK_FALSE(found.passed_over);
  CHECK_FALSE(found.is_stale_in_part());
  REQUIRE(found.runner_up);
  const Lookup other = without_library(found);
  CHECK(other.is_hit());
  CHECK(other.implementation->name == "fast");
  CHECK(other.config == spec::Config{128, 2});
  CHECK(other.record->value.key == fresh.key_of(bucket) + " | without library");
  const std::string why = fresh.explained(bucket).why;
  CAPTURE(why);
  if (library_is_here())
    CHECK(why.ends_with("what the library refuses, goes to fast threads=128 vector=2, 10.00 us"));
  else
    CHECK(why ==
          "the record's runner-up serves: vendor won with 9.00 us and cannot serve (the library cublaslt is not here); "
          "this is the fastest of the same tune without a library");
  CHECK_FALSE(stale.at(bucket).stale);
  CHECK(stale.at(bucket).is_stale_in_part());
  CHECK_FALSE(own.at(bucket).runner_up);  // no library serves, so there is nothing to stand behind
}

TEST_CASE("where a library breaks a constraint at a size its runner-up serves that size") {
  const Problem bucket = sized(1024, 4096);
  VendorShelf shelf;
  shelf.put(shelf.key_of(bucket), bucket, "vendor", {256, 8}, 9000);  // even rows only
  shelf.put(spec::runner_up_key(shelf.key_of(bucket)), bucket, "fast", {128, 2}, 10000);
  const Explanation odd = shelf.explained(sized(1001, 4096));
  CHECK(odd.origin == Origin::overlay);
  CHECK(odd.implementation == "fast");
  CHECK(odd.config == "threads=128 vector=2");
  CHECK(odd.cost_ns == 10000);
  CHECK(shelf.explained(sized(1002, 4096)).implementation == (library_is_here() ? "vendor" : "fast"));
}

TEST_CASE("a part of a bucket has a runner-up of its own, or that of what serves above it") {
  const Problem bucket = sized(1024, 4096), low = sized(600, 4096);
  const auto split = [&](VendorShelf& shelf, const char* winner, bool with_runner_up) {
    const std::string key = spec::refined_key(shelf.key_of(bucket), "rows", 600);
    shelf.put(key, low, winner, {64, 1}, 4000);
    if (with_runner_up) shelf.put(spec::runner_up_key(key), low, "fast", {32, 1}, 5000);
  };
  const auto lowest = [&](VendorShelf& shelf) { return part_at(shelf.op, shelf.at(low), low); };
  SUBCASE("its own") {
    VendorShelf shelf;
    shelf.put(bucket, "vendor");
    split(shelf, "vendor", true);
    CHECK(lowest(shelf).config == spec::Config{64, 1});
    CHECK(without_library(lowest(shelf)).config == spec::Config{32, 1});
    CHECK(without_library(lowest(shelf)).bucket == low);
    CHECK(shelf.at(low).unusable_refinements == 0);
  }
  SUBCASE("the bucket's") {
    VendorShelf shelf;
    shelf.put(bucket, "vendor");
    split(shelf, "vendor", false);
    CHECK(without_library(lowest(shelf)).config == spec::Config{128, 2});
    CHECK(without_library(lowest(shelf)).bucket == bucket);
  }
  SUBCASE("the bucket's record, which needs no library") {
    VendorShelf shelf;
    shelf.put(shelf.key_of(bucket), bucket, "fast", {256, 4}, 9000);
    split(shelf, "vendor", false);
    CHECK(without_library(lowest(shelf)).config == spec::Config{256, 4});
  }
  const auto split_above = [&](VendorShelf& shelf, const char* winner) {
    const Problem middle = sized(800, 4096);
    const std::string key = spec::refined_key(shelf.key_of(bucket), "rows", 800);
    shelf.put(key, middle, winner, {512, 1}, 6000);
    if (winner == std::string_view("vendor")) shelf.put(spec::runner_up_key(key), middle, "fast", {32, 2}, 7000);
  };
  SUBCASE("that of the part above") {
    VendorShelf shelf;
    shelf.put(bucket, "vendor");
    split(shelf, "vendor", false);
    split_above(shelf, "vendor");
    CHECK(without_library(lowest(shelf)).config == spec::Config{32, 2});
    CHECK(without_library(lowest(shelf)).bucket == sized(800, 4096));
    CHECK(without_library(lowest(shelf)).why ==
          "vendor cannot serve, and the runner-up of the record above its own does");
  }
  SUBCASE("the part above, which needs no library") {
    VendorShelf shelf;
    shelf.put(bucket, "vendor");
    split(shelf, "vendor", false);
    split_above(shelf, "fast");
    CHECK(without_library(lowest(shelf)).config == spec::Config{512, 1});
    CHECK(without_library(lowest(shelf)).why ==
          "vendor cannot serve, and the record above its own, which needs no library, does");
  }
  SUBCASE("its own serves in its place") {
    VendorShelf shelf;
    shelf.put(bucket, "gone");
    split(shelf, "gone", true);
    CHECK(lowest(shelf).config == spec::Config{32, 1});
    CHECK(shelf.at(low).refinements.front().passed_over->implementation == "gone");
  }
  SUBCASE("without one its sizes are those of the part above") {
    VendorShelf shelf;
    shelf.put(bucket, "gone");
    split(shelf, "gone", false);
    CHECK(lowest(shelf).config == spec::Config{128, 2});
    CHECK(shelf.at(low).unusable_refinements == 1);
  }
}

TEST_CASE("explain names the runner-up of the part that a size lies in, and why it serves") {
  const Problem bucket = sized(1024, 4096), low = sized(600, 4096);
  const std::string why_gone = " and cannot serve (its implementation 'gone' is not declared by the op); ";
  const std::string why_missing = " and cannot serve (the library cublaslt is not here); ";
  const std::string fastest = "this is the fastest of the same tune without a library";
  for (const char* winner : {"gone", "vendor"}) {
    if (winner == std::string_view("vendor") && library_is_here()) continue;
    CAPTURE(winner);
    VendorShelf shelf;
    const std::string key = spec::refined_key(shelf.key_of(bucket), "rows", 600);
    shelf.put(bucket, winner);
    shelf.put(key, low, winner, {64, 1}, 4000);
    shelf.put(spec::runner_up_key(key), low, "fast", {32, 1}, 5000);
    shelf.put(spec::refined_key(shelf.key_of(bucket), "rows", 550), sized(550, 4096), winner, {64, 1}, 4000);
    const std::string and_why = winner == std::string_view("gone") ? why_gone : why_missing;
    const Explanation lower = shelf.explained(sized(520, 4096)), upper = shelf.explained(sized(601, 4096));
    CHECK(lower.config == "threads=32 vector=1");
    CHECK(lower.why ==
          "the bucket is split at rows=600; in its lower part, up to rows=600, the record's runner-up serves: " +
              std::string(winner) + " won with 4.00 us" + and_why + fastest);
    CHECK(upper.config == "threads=128 vector=2");
    CHECK(upper.why == "the bucket is split at rows=600; above, the record's runner-up serves: " + std::string(winner) +
                           " won with 9.00 us" + and_why + fastest);
    CHECK(upper.key == shelf.key_of(bucket));
  }
}

TEST_CASE("a near record that cannot serve gives way to its runner-up, which is no neighbour by itself") {
  VendorShelf shelf;
  shelf.put(sized(32, 4096), "gone");
  shelf.put(spec::runner_up_key(shelf.key_of(sized(64, 4096))), sized(64, 4096), "fast", {64, 1}, 1);
  const Lookup found = shelf.at(sized(64, 4096));
  CHECK(found.origin == Origin::nearest);
  CHECK(found.config == spec::Config{128, 2});
  CHECK(found.cost_ns == 10000);
  VendorShelf library;
  library.put(sized(32, 4096), "vendor");
  const Lookup stand_in = library.at(sized(64, 4096));
  CHECK(stand_in.implementation->name == "vendor");
  CHECK(without_library(stand_in).origin == Origin::nearest);
  CHECK(without_library(stand_in).bucket == sized(64, 4096));
}
