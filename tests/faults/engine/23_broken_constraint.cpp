// A config that is legal in its bucket need not be legal at a real size inside it.
#include <rapidcheck.h>

#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

/// The tuned record's config for every bucket up to 512 x 512: what other buckets would have been given by a tune.
void spread_over_buckets(const fs::path& overlay, const manifest::Op& op) {
  const store::Record tuned = records_of(overlay).at(0);
  const auto file = store::File::open(overlay, store::Access::read_write);
  std::vector<store::Record> records;
  for (std::int64_t rows = 1; rows <= 512; rows *= 2)
    for (std::int64_t cols = 1; cols <= 512; cols *= 2) {
      store::Record record = tuned;
      Problem bucket;
      bucket.axes[0] = rows;
      bucket.axes[1] = cols;
      record.bucket = manifest::to_string(op, bucket);
      record.key = manifest::Bucket({op, h200(), Regime::cold_l2}, bucket).key();
      one_choice(record);
      records.push_back(std::move(record));
    }
  file->put_all(records, {});
}

}  // namespace

TEST_CASE(
    "fault 23: at any real size the default serves exactly where the winner's constraint breaks, and is named so") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  spread_over_buckets(overlay, scale_op());
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  std::int64_t cases = 0, fallbacks = 0;
  const bool held = rc::check("real sizes", [&](std::uint16_t random_rows, std::uint16_t random_cols) {
    const std::int64_t rows = random_rows % 64 + 1, cols = random_cols % 512 + 1;
    // A bucket of fewer than four columns breaks the constraint at its own edge: then there is no usable record.
    if (cols < 3) return;
    const bool legal = cols % 4 == 0;
    const ScaleCall call(engine, rows, cols);
    const Origin origin = call.launch(machine.stream());  // checks every element
    RC_ASSERT((origin == Origin::default_) == !legal);
    const Explanation explained = engine.explain(call.op, call.problem);
    RC_ASSERT((explained.origin == Origin::default_) == !legal);
    RC_ASSERT(explained.config == (legal ? "threads=128 vector=4" : "threads=64 vector=1"));
    RC_ASSERT(contains(explained.why, "cols % vector == 0") == !legal);
    ++cases;
    fallbacks += legal ? 0 : 1;
  });
  CHECK(held);
  CHECK(fallbacks > 0);
  CHECK(engine.stats().constraint_fallbacks == fallbacks);
  CHECK(engine.stats().default_ == fallbacks);
  CHECK(engine.stats().tunes == 0);
  CHECK(engine.stats().compiles == 0);
  tally(23, cases, "launches at random real sizes");
}

TEST_CASE("fault 23: the command names the constraint that a real size breaks, and what serves instead") {
  const TemporaryFolder folder;
  tuned_overlay(folder);
  const std::string broken = expect(0, "kiln explain scale rows=64 cols=99 dtype=f32 --json" + globals(folder));
  CHECK_MESSAGE(contains(broken, R"("origin":"default")"), broken);
  CHECK(contains(broken, "cols % vector == 0"));
  CHECK(contains(broken, R"("config":"threads=64 vector=1")"));
  const std::string legal = expect(0, "kiln explain scale rows=64 cols=100 dtype=f32 --json" + globals(folder));
  CHECK_MESSAGE(contains(legal, R"("origin":"overlay")"), legal);
  CHECK(contains(expect(0, "kiln run scale rows=64 cols=99 dtype=f32 factor=2" + globals(folder)), "default"));
  tally(23, 3, "commands at a size that breaks a constraint");
}

}  // namespace kiln::faults
