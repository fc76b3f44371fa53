// What stands in for a record that is missing, and how much slower that is expected to be.
#include "answer/near_answers.hpp"

#include <limits>

#include "answer/model.hpp"
#include "answer/shelf.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

namespace {

double modelled(const manifest::Op& op, const Problem& bucket, const manifest::Config& config,
                const manifest::DeviceFacts& device = h200()) {
  return answer::estimate({op, device}, manifest::Variant{&op.implementations.front(), config}, bucket).ns;
}

/// rows_op() with a parameter of the launch alone, as `pdl` of the built-in ops: 1 is not legal before sm_90.
manifest::Op early_op() {
  manifest::Op op = rows_op(false);
  std::vector<manifest::SourceFile> files = op.manifests;
  files.insert(files.end(), op.files.begin(), op.files.end());
  for (manifest::SourceFile& file : files) {
    if (file.name != "fast.toml") continue;
    std::string text = file.text.str();
    const auto replace = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    replace("[parameters]\n", "[parameters]\npdl = [0, 1]\n");
    replace("all = [", "all = [\"pdl == 0 || sm >= 90\", ");
    replace("[default]\n", "[default]\npdl = 0\n");
    replace("args   = [\"x\", \"y\"]\n", "args   = [\"x\", \"y\"]\nprogrammatic = \"pdl\"\n");
    file.text = text;
  }
  return manifest::parse_op("rows", "/ops/rows", files);
}

}  // namespace

TEST_CASE("the nearest record is the one fewest doublings away, not the one of the same volume") {
  Shelf shelf(false);
  shelf.put(sized(4096, 64), "threads=32 vector=2", 1000);
  shelf.put(sized(256, 4096), "threads=256 vector=4", 9000);
  const Answer found = shelf.serves(sized(64, 4096));  // 2^18 elements, as many as the first has
  CHECK(found.origin == Origin::nearest);
  CHECK(found.config == manifest::Config{256, 4});
  CHECK(found.distance == 2);
  CHECK(found.cost_ns == 9000);
  CHECK(found.timed_at == "of the nearest bucket");
  CHECK(found.why ==
        "no usable record for this bucket; the nearest is rows=256 cols=4096 dtype=f32, 2.0 doublings away");
}

TEST_CASE("what serves near buckets is preferred to what the model alone expects to be about as fast") {
  const Problem bucket = sized(64, 4096);
  const Answer best = Shelf().serves(bucket);
  REQUIRE(best.origin == Origin::model);
  const manifest::Op op = rows_op();
  const double best_ns = modelled(op, bucket, best.config);
  std::string close, slow;
  for (const manifest::Config& config : manifest::search_space({op, h200()}, op.implementations.front(), bucket)) {
    const double behind = modelled(op, bucket, config) / best_ns;
    if (config != best.config && config[1] < 8 && behind < 1.07)
      close = manifest::to_string(op.implementations.front(), config);
    if (behind > 1.3) slow = manifest::to_string(op.implementations.front(), config);
  }
  REQUIRE_FALSE(close.empty());
  Shelf near;
  near.put(sized(256, 4096), close, 1000);
  const Answer known = near.serves(bucket);
  CHECK(known.origin == Origin::model);
  CHECK(manifest::to_string(*known.implementation, known.config) == close);
  CHECK(
      known.why ==
      "the nearest record is rows=256 cols=4096 dtype=f32, 2.0 doublings away; of what is legal the model expects this, which serves a near bucket, to be the fastest");
  Shelf far;
  far.put(sized(1024, 4096), close, 1000);  // four doublings
  CHECK(far.serves(bucket).config == best.config);
  Shelf poor;
  poor.put(sized(256, 4096), slow, 1000);
  CHECK(poor.serves(bucket).config == best.config);
}

TEST_CASE("what serves all lengths a doubling away serves here") {
  const Problem bucket = sized(64, 4096);
  Shelf steady;
  steady.put(sized(128, 4096), "threads=256 vector=4", 1000);
  CHECK(steady.serves(bucket).origin == Origin::nearest);
  CHECK(steady.serves(bucket).config == manifest::Config{256, 4});
  Shelf varied;
  varied.put(sized(128, 4096),
             std::vector<Chosen>{{"rows=65..96", "threads=128 vector=4"}, {"rows=97..128", "threads=256 vector=4"}});
  CHECK(varied.serves(bucket).origin == Origin::model);
  Shelf wider;  // another row is another problem
  wider.put(sized(64, 8192), "threads=256 vector=4", 1000);
  CHECK(wider.serves(bucket).origin == Origin::model);
}

TEST_CASE("a size that breaks the constraints of the nearest record goes to the next near one") {
  Shelf shelf(false);
  shelf.put(sized(32, 4096), "threads=256 vector=8", 1000);  // even rows only
  shelf.put(sized(1024, 4096), "threads=128 vector=4", 1000);
  CHECK(shelf.serves(sized(64, 4096)).config == manifest::Config{256, 8});
  CHECK(shelf.serves(sized(63, 4096)).config == manifest::Config{128, 4});
  CHECK(shelf.serves(sized(63, 4096)).origin == Origin::nearest);
}

TEST_CASE("the same bucket of a near device serves before other buckets of that device") {
  Shelf shelf;
  const Problem bucket = sized(64, 4096);
  const auto h100 = device_of(h100_class);
  // By the model and its time, the other bucket's config would be the better one.
  shelf.put(bucket, "threads=1024 vector=1", 3 * modelled(shelf.op, bucket, {1024, 1}));
  shelf.put(sized(128, 4096), "threads=256 vector=4", 0.1 * modelled(shelf.op, sized(128, 4096), {256, 4}));
  const Answer found = shelf.serves(bucket, h100);
  CHECK(found.config == manifest::Config{1024, 1});
  CHECK(found.timed_at == "of the nearest device");
  CHECK(found.why ==
        std::string("no usable record for this bucket; the same bucket's of ") + h200_class + ", 0.5 doublings away");
}

TEST_CASE("a record of the same bucket on a device that hardly differs is said without a distance") {
  Shelf shelf;
  const Problem bucket = sized(64, 4096);
  shelf.put(bucket, "threads=256 vector=4", 1000);
  std::string almost = h200_class;
  almost.replace(almost.find("bus_"), std::string::npos, "bus_6144");
  REQUIRE(almost != h200_class);
  CHECK(shelf.serves(bucket, device_of(almost)).why ==
        std::string("no usable record for this bucket; the same bucket's of ") + h200_class);
}

TEST_CASE("the same bucket of a device keeps its intervals; so does a near bucket of the same lengths") {
  for (const std::int64_t cols : {4096, 8192}) {
    CAPTURE(cols);
    Shelf shelf(false);
    shelf.put(sized(1024, cols), std::vector<Chosen>{{"rows=513..700", "threads=64 vector=1"},
                                                     {"rows=701..1024", "threads=256 vector=4"}});
    const auto device = device_of(cols == 4096 ? h100_class : h200_class);
    CHECK(shelf.serves(sized(700, 4096), device).config == manifest::Config{64, 1});
    CHECK(shelf.serves(sized(701, 4096), device).config == manifest::Config{256, 4});
    CHECK(shelf.serves(sized(700, 4096), device).origin == Origin::nearest);
    // Of another length no interval holds: the choice for the upper edge comes first.
    CHECK(shelf.serves(sized(2000, 4096), device).config == manifest::Config{256, 4});
  }
}

TEST_CASE("the same bucket of a like device serves before this device's near buckets, whichever times they have") {
  const Problem bucket = sized(64, 4096);
  for (const bool with_model : {false, true}) {
    CAPTURE(with_model);
    Shelf shelf(with_model);
    shelf.put(bucket, "threads=256 vector=4", 1000);
    shelf.put(sized(128, 4096), "threads=128 vector=4", 100, h100_class);
    const Answer found = shelf.serves(bucket, device_of(h100_class));
    CHECK(found.origin == Origin::nearest);
    CHECK(found.config == manifest::Config{256, 4});
  }
}

TEST_CASE("another architecture's record serves behind this device's own, and its same bucket before its other ones") {
  Shelf shelf(false);
  shelf.put(sized(64, 4096), "threads=64 vector=4", 1000, a100_class);
  shelf.put(sized(128, 4096), "threads=128 vector=4", 1000, a100_class);
  CHECK(shelf.serves(sized(64, 4096)).config == manifest::Config{64, 4});
  shelf.put(sized(4096, 4096), "threads=512 vector=4", 1000);
  CHECK(shelf.serves(sized(64, 4096)).config == manifest::Config{512, 4});
}

TEST_CASE("what is launched early elsewhere is launched as usual where that is not legal") {
  Shelf shelf(early_op());
  const Problem bucket = sized(64, 4096);
  shelf.put(bucket, std::vector<Chosen>{{"", "pdl=1 threads=256 vector=4"}});
  const Answer hopper = shelf.serves(bucket, device_of(h100_class)),
               ampere = shelf.serves(bucket, device_of(a100_class));
  CHECK(hopper.config == manifest::Config{1, 256, 4});
  CHECK(ampere.origin == Origin::nearest);
  CHECK(ampere.config == manifest::Config{0, 256, 4});
  CHECK(ampere.why.ends_with(", launched as usual: not early on this device"));
}

TEST_CASE("where no record is near, what the model expects to be fastest stands in") {
  Shelf shelf;
  shelf.put(sized(64, 8192), "threads=1024 vector=8", 1000);  // longer than the row that is asked for
  const Answer guess = shelf.serves(sized(63, 4096));
  CHECK(guess.origin == Origin::model);
  CHECK(guess.cost_ns == 0);
  const manifest::Implementation& fast = *guess.implementation;
  CHECK_FALSE(
      manifest::Variant{&fast, guess.config}.broken_constraint({shelf.op, h200()}, sized(63, 4096)).has_value());
  CHECK_FALSE(
      manifest::Variant{&fast, guess.config}.broken_constraint({shelf.op, h200()}, sized(64, 4096)).has_value());
  double best = std::numeric_limits<double>::infinity();
  for (const manifest::Config& config : manifest::search_space({shelf.op, h200()}, fast, sized(64, 4096)))
    if (config[1] < 8) best = std::min(best, modelled(shelf.op, sized(64, 4096), config));
  CHECK(modelled(shelf.op, sized(64, 4096), guess.config) == best);
  CHECK(best < 0.9 * modelled(shelf.op, sized(64, 4096), fast.default_config));
}

TEST_CASE("where the model has nothing to say, or nothing better, the default stands in") {
  Shelf silent(false);
  const Answer unknown = silent.serves(sized(64, 4096));
  CHECK(unknown.origin == Origin::default_);
  CHECK(unknown.why == "no record is near, so the op's first legal default serves");
  Shelf shelf;
  CHECK(shelf.serves(sized(2, 32)).origin == Origin::default_);  // a row as long as the default's threads
}

TEST_CASE("a near record is expected to be as slow as winners were in buckets as far from their own") {
  Shelf shelf(false);
  // Each bucket has a winner of its own, which takes 1.3 times the best time in any other.
  const char* winners[] = {"threads=128 vector=4", "threads=256 vector=4", "threads=512 vector=4",
                           "threads=1024 vector=4"};
  for (int i = 0; i < 4; ++i) {
    store::Record record = record_of(shelf.op, sized(16 << i, 4096), winners[i], 1000);
    record.baseline_ns = 3500;
    for (int each = 0; each < 4; ++each)
      record.candidates.push_back(candidate_of(16 << i, winners[each], each == i ? 1000 : 1300));
    shelf.layers.put_all(std::vector{record}, {});
  }
  const Explanation fallback = shelf.explained(sized(256, 4096));
  CHECK(fallback.origin == Origin::nearest);
  CHECK(fallback.expected_slowdown == doctest::Approx(1.3));
  CHECK(fallback.slowdown_grounds == "the median of records' configs in buckets as far from their own");
  CHECK(fallback.miss == "absent");
}

TEST_CASE("without candidates the model says how much slower another device's record is") {
  Shelf shelf;
  shelf.put(sized(64, 4096), "threads=32 vector=1", 1000);
  const Explanation fallback = shelf.explained(sized(64, 4096), device_of(h100_class));
  CHECK(fallback.origin == Origin::nearest);
  CHECK(fallback.expected_slowdown > 1.1);
  CHECK(fallback.slowdown_grounds == "by the cost model");
}

TEST_CASE("a default is expected to be as slow as it was elsewhere; where nothing was timed that is unknown") {
  Shelf shelf(false);
  const Explanation unknown = shelf.explained(sized(64, 4096));
  CHECK(unknown.expected_slowdown == 0);
  CHECK(unknown.slowdown_grounds == "no near record timed it, and it has no cost model");
  store::Record record = record_of(shelf.op, sized(64, 8192), "threads=1024 vector=8", 1000);
  record.baseline_ns = 2500;
  shelf.layers.put_all(std::vector{record}, {});
  const Explanation fallback = shelf.explained(sized(64, 4096));
  CHECK(fallback.origin == Origin::default_);
  CHECK(fallback.expected_slowdown == 2.5);
  Shelf guessing;
  const Explanation guess = guessing.explained(sized(64, 4096));
  CHECK(guess.origin == Origin::model);
  CHECK(guess.expected_slowdown == 0);
  CHECK(guess.slowdown_grounds == "no record is near, and nothing timed the model's choice");
}
