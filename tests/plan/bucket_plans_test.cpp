// Which answers share a plan, in which order plans are tried for a size, and when one that failed is tried again.
#include "plan/bucket_plans.hpp"

#include "answer/shelf.hpp"

using namespace kiln;
using namespace kiln::plan;
using namespace kiln::answer::testing;

namespace {

const Problem plans_bucket = sized(1024, 4096);

struct Plans {
  Plans() {
    shelf.put(plans_bucket, std::vector<Chosen>{{"rows=513..600", "threads=64 vector=1", 3000},
                                                {"rows=601..700", "threads=128 vector=2", 4000},
                                                {"rows=701..800", "threads=64 vector=1", 5000},
                                                {"rows=801..1024", "threads=256 vector=4", 6000}});
  }
  Shelf shelf{false};
};

}  // namespace

TEST_CASE("answers of one config share a slot, whose answer is that of the largest sizes") {
  Plans of;
  BucketPlans plans(of.shelf.at(plans_bucket));
  REQUIRE(plans.answers().size() == 8);  // four, three configs beyond their sizes, and the default
  CHECK(plans.slots.size() == 6);        // of the largest the choice is the one beyond its sizes too
  CHECK(&plans.slot(0) == &plans.slot(2));
  CHECK(&plans.slot(3) == &plans.slot(4));
  CHECK(plans.slot(0).answer->cost_ns == 5000);
  CHECK(plans.slot(0).answer->at == sized(800, 4096));
  CHECK(plans.slot(0).made() == nullptr);
}

TEST_CASE("the slots for a size are those of the answers that hold it, in order and each once") {
  Plans of;
  BucketPlans plans(of.shelf.at(plans_bucket));
  const auto low = plans.slots_for(sized(520, 4096));
  REQUIRE(low.size() == 5);
  CHECK(low.front() == &plans.slot(0));
  CHECK(low.back()->answer->origin == Origin::default_);
  CHECK(plans.slots_for(sized(650, 4096)).front() == &plans.slot(1));
  CHECK(plans.slots_for(sized(750, 4096)).front() == &plans.slot(0));
}

TEST_CASE("the answer that serves is the first that is legal there, and may be made") {
  Plans of;
  of.shelf.put(plans_bucket, std::vector<Chosen>{{"rows=513..600", "threads=256 vector=8", 3000},  // even rows only
                                                 {"rows=601..1024", "threads=128 vector=4", 4000}});
  BucketPlans plans(of.shelf.at(plans_bucket));
  const auto at = [&](std::int64_t rows, std::size_t from = 0) { return plans.first(sized(rows, 4096), false, from); };
  CHECK(at(600).index == 0);
  CHECK(at(600).passed_over.empty());
  CHECK(at(650).index == 1);
  const auto odd = at(599);
  CHECK(odd.passed_over.front().answer == &plans.answers().front());
  CHECK(odd.passed_over.front().why_not.starts_with("breaks the constraint"));
  REQUIRE(odd.index < plans.answers().size());
  CHECK(plans.answers()[odd.index].config == manifest::Config{128, 4});  // beyond its sizes
  CHECK(at(599, plans.answers().size()).index == plans.answers().size());
  plans.slot(0).settled = true;  // it cannot be made
  CHECK(at(600).serves != &plans.answers().front());
}

TEST_CASE("what failed for a moment is due again after twice as long each time, up to the longest pause") {
  Retry retry;
  Retry::Clock::time_point now{};
  CHECK(retry.is_due(now));
  std::chrono::milliseconds pause = Retry::first_pause;
  for (int i = 0; i < 20; ++i) {
    retry.failed(now);
    CHECK_FALSE(retry.is_due(now));
    CHECK_FALSE(retry.is_due(now + pause - std::chrono::nanoseconds(1)));
    now += pause;
    CHECK(retry.is_due(now));
    pause = std::min(2 * pause, Retry::longest_pause);
  }
}
