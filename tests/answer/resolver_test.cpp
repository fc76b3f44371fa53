// Which choice of a record serves which size, and what serves where that one cannot.
#include "answer/resolver.hpp"
#include "answer/machine_code.hpp"

#include "answer/shelf.hpp"
#include "answer/stale.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

namespace {

constexpr auto without_library = store::Role::without_library;

bool library_is_here() { return !jit::library_identity("cublaslt").empty(); }

// With another implementation, `vendor`, which is `fast` as a library would compute it. `gone` is declared nowhere.
Shelf vendor_shelf() {
  manifest::Op op = rows_op(false);
  manifest::Implementation vendor = op.implementations.front();
  vendor.name = "vendor";
  vendor.library = "cublaslt";
  op.implementations.push_back(std::move(vendor));
  return Shelf(std::move(op));
}

const Problem tall = sized(1024, 4096);

std::vector<Chosen> with_library(const char* winner) {
  return {{"rows=513..700", "threads=64 vector=1", 4000, winner},
          {"rows=701..1024", "threads=256 vector=4", 9000, winner},
          {"rows=513..600", "threads=32 vector=1", 5000, "fast", without_library},
          {"rows=601..1024", "threads=128 vector=2", 10000, "fast", without_library}};
}

}  // namespace

TEST_CASE("each size is served by the choice whose interval holds it") {
  Shelf shelf(false);
  shelf.put(tall, std::vector<Chosen>{{"rows=513..600", "threads=64 vector=1", 4000},
                                      {"rows=601..700", "threads=128 vector=2", 5000},
                                      {"rows=701..1024", "threads=256 vector=4", 9000}});
  CHECK(shelf.serves(sized(513, 4096)).config == manifest::Config{64, 1});
  CHECK(shelf.serves(sized(600, 4096)).config == manifest::Config{64, 1});
  CHECK(shelf.serves(sized(601, 4096)).config == manifest::Config{128, 2});
  CHECK(shelf.serves(sized(700, 4096)).config == manifest::Config{128, 2});
  CHECK(shelf.serves(sized(701, 4096)).config == manifest::Config{256, 4});
  CHECK(shelf.serves(tall).config == manifest::Config{256, 4});
  const Answer middle = shelf.serves(sized(650, 4096));
  CHECK(middle.at == sized(700, 4096));
  CHECK(middle.cost_ns == 5000);
  CHECK(middle.timed_at == "at rows=700");
  CHECK(middle.why == "the record's config for rows=601..700");
  CHECK(shelf.serves(tall).timed_at == "at the bucket's upper edge");
}

TEST_CASE("choices of one config are made ready for the largest of their sizes") {
  Shelf shelf(false);
  shelf.put(tall, std::vector<Chosen>{{"rows=513..600", "threads=64 vector=1"},
                                      {"rows=601..700", "threads=128 vector=2"},
                                      {"rows=701..800", "threads=64 vector=1"},
                                      {"rows=801..1024", "threads=256 vector=4"}});
  CHECK(shelf.serves(sized(520, 4096)).at == sized(800, 4096));
  CHECK(shelf.serves(sized(750, 4096)).at == sized(800, 4096));
  CHECK(shelf.serves(sized(650, 4096)).at == sized(700, 4096));
}

TEST_CASE("the order of the answers is the record's choices, its kernels beyond their sizes, and the defaults") {
  Shelf shelf(false);
  shelf.put(tall,
            std::vector<Chosen>{{"rows=513..700", "threads=64 vector=1"}, {"rows=701..1024", "threads=256 vector=4"}});
  const Resolution found = shelf.at(sized(520, 4096));
  REQUIRE(found.answers.size() == 5);
  CHECK(found.answers[0].config == manifest::Config{64, 1});
  CHECK(found.answers[1].config == manifest::Config{256, 4});
  CHECK(found.answers[2].config == manifest::Config{256, 4});
  CHECK(found.answers[2].is_beyond);
  CHECK(found.answers[3].config == manifest::Config{64, 1});
  CHECK(found.answers[4].origin == Origin::default_);
  const auto picked = found.picked_by_size();
  REQUIRE(picked.size() == 2);
  CHECK(picked[0] == &found.answers[0]);
  CHECK(picked[1] == &found.answers[1]);
  CHECK(code_needed(found, "sm_90a").size() == 3);
}

TEST_CASE("a size that breaks a choice's constraint goes to another choice of the record, else to a default") {
  Shelf shelf(false);
  shelf.put(tall,
            std::vector<Chosen>{{"rows=513..700", "threads=64 vector=8"}, {"rows=701..1024", "threads=256 vector=4"}});
  CHECK(shelf.serves(sized(600, 4096)).config == manifest::Config{64, 8});
  const Answer odd = shelf.serves(sized(601, 4096));  // vectors of 8 take even rows only
  CHECK(odd.config == manifest::Config{256, 4});
  CHECK(odd.origin == Origin::overlay);
  CHECK(shelf.explained(sized(601, 4096)).why ==
        "fast threads=64 vector=8, from the overlay, breaks the constraint 'vector < 8 || rows % 2 == 0' at this size; "
        "the record's config for rows=701..1024 serves beyond its sizes");
  Shelf alone(false);
  alone.put(tall, "threads=64 vector=8", 1000);
  CHECK(alone.serves(sized(601, 4096)).origin == Origin::default_);
  CHECK(alone.explained(sized(601, 4096)).why.ends_with("; the op's first legal default serves"));
}

TEST_CASE("a choice that is not declared, or not legal, leaves its sizes to the record's others") {
  Shelf shelf(false);
  shelf.put(tall, std::vector<Chosen>{{"rows=513..600", "threads=7 vector=1"},    // not declared
                                      {"rows=601..701", "threads=256 vector=8"},  // not legal at its upper end
                                      {"rows=702..1024", "threads=256 vector=4"}});
  const Resolution found = shelf.at(sized(520, 4096));
  CHECK(found.is_hit());
  CHECK(found.unusable_choices == 2);
  CHECK_FALSE(found.miss);
  CHECK(shelf.serves(sized(520, 4096)).config == manifest::Config{256, 4});
  CHECK(shelf.serves(sized(700, 4096)).config == manifest::Config{256, 4});
}

TEST_CASE("a record of which nothing can serve is unusable, and does not hide the next layer's") {
  Shelf shelf(false);
  shelf.put(tall, "threads=7 vector=1", 1000);
  const Resolution found = shelf.at(tall, false);
  CHECK_FALSE(found.is_hit());
  CHECK(found.miss == Miss::unusable);
  CHECK(found.unusable.find("outside the declared space") != std::string::npos);
  CHECK(found.answers.empty());
  CHECK(shelf.explained(tall).why.starts_with("the record cannot serve ("));
}

TEST_CASE("a look-up that wants no fallback gets none") {
  Shelf shelf;
  shelf.put(sized(32, 4096), "threads=256 vector=4", 1000);
  const Resolution found = shelf.at(sized(64, 4096), false);
  CHECK(found.answers.empty());
  CHECK(found.miss == Miss::absent);
}

TEST_CASE("where a library cannot serve, the record's choices without a library are a hit, by their own intervals") {
  for (const char* winner : {"gone", "vendor"}) {
    if (winner == std::string_view("vendor") && library_is_here()) continue;
    CAPTURE(winner);
    Shelf shelf = vendor_shelf();
    shelf.put(tall, with_library(winner));
    const Answer low = shelf.serves(sized(600, 4096)), high = shelf.serves(sized(601, 4096));
    CHECK(low.origin == Origin::overlay);
    CHECK(low.config == manifest::Config{32, 1});
    CHECK(high.config == manifest::Config{128, 2});
    CHECK(high.cost_ns == 10000);
    CHECK_FALSE(shelf.at(tall).miss);
    const Explanation explained = shelf.explained(tall);
    CHECK(explained.expected_slowdown == 1);
    const std::string reason = winner == std::string_view("gone")
                                   ? "its implementation 'gone' is not declared by the op"
                                   : "the library cublaslt is not here";
    CHECK(explained.why == std::string(winner) + ", the fastest with 9.00 us, cannot serve (" + reason +
                               "); this is the fastest of the same tune without a library for rows=601..1024");
  }
}

TEST_CASE("behind a library's choice stand those that need none, for lengths on the device and what it refuses") {
  if (!library_is_here()) return;
  Shelf shelf = vendor_shelf();
  shelf.put(tall, with_library("vendor"));
  const Resolution found = shelf.at(tall);
  const Answer* own = found.first_own(sized(650, 4096)).serves;
  CHECK(shelf.serves(sized(650, 4096)).implementation->name == "vendor");
  REQUIRE(own != nullptr);
  CHECK(own->config == manifest::Config{128, 2});
  CHECK(shelf.explained(tall).why.ends_with("what the library refuses, goes to fast threads=128 vector=2, 10.00 us"));
}

TEST_CASE("where a library breaks a constraint at a size, the choice without a library serves that size") {
  Shelf shelf = vendor_shelf();
  shelf.put(tall, std::vector<Chosen>{{"", "threads=256 vector=8", 9000, "vendor"},  // even rows only
                                      {"", "threads=128 vector=2", 10000, "fast", without_library}});
  CHECK(shelf.serves(sized(1001, 4096)).config == manifest::Config{128, 2});
  CHECK(shelf.serves(sized(1001, 4096)).origin == Origin::overlay);
  CHECK(shelf.serves(sized(1002, 4096)).implementation->name == (library_is_here() ? "vendor" : "fast"));
}

TEST_CASE("of a near record that a library won, its own kernel stands in where the library is not asked") {
  Shelf shelf = vendor_shelf();
  shelf.put(tall, with_library("vendor"));
  const Answer like = shelf.serves(tall, device_of(h100_class));  // another class, and no context
  CHECK(like.origin == Origin::nearest);
  CHECK(like.implementation->name == "fast");
  CHECK(like.config == manifest::Config{128, 2});
}

TEST_CASE("a record is stale when one of its choices is, and that one alone says so") {
  Shelf shelf(false);
  std::vector<Chosen> choices{{"rows=513..700", "threads=64 vector=1"}, {"rows=701..1024", "threads=256 vector=4"}};
  choices[0].stale = true;
  shelf.put(tall, choices);
  CHECK(shelf.at(tall).is_stale());
  CHECK(shelf.serves(sized(600, 4096)).stale);
  CHECK_FALSE(shelf.serves(tall).stale);
  CHECK(find_stale({&shelf.op, 1}, h200(), Regime::cold_l2, shelf.layers).stale.size() == 1);
  CHECK(freshness_of(manifest::Catalogue::of({shelf.op}), shelf.at(tall).record->value) == Freshness::stale);
  Shelf fresh(false);
  choices[0].stale = false;
  fresh.put(tall, choices);
  CHECK_FALSE(fresh.at(tall).is_stale());
  CHECK(freshness_of(manifest::Catalogue::of({fresh.op}), fresh.at(tall).record->value) == Freshness::present);
}

TEST_CASE("a hit is expected to take a tuned config's time") {
  Shelf shelf;
  shelf.put(sized(64, 4096), "threads=256 vector=4", 1000);
  CHECK(shelf.explained(sized(64, 4096)).expected_slowdown == 1);
}

TEST_CASE(
    "ranks whose sizes may differ share the config of the largest sizes, and ranks that are alike have one for each size") {
  manifest::Op op = rows_op(false);
  op.axes[1].team = true;  // cols stands for the number of ranks
  for (manifest::Implementation& each : op.implementations) each.constraints.clear();  // which ask for wider rows
  op.selections[0].name = "ranks";
  op.selections[0].values = {"any", "alike"};
  Shelf shelf(std::move(op));
  const auto at = [](std::int64_t rows, std::uint8_t ranks) {
    Problem problem = sized(rows, 8);
    problem.selections[0] = ranks;
    return problem;
  };
  const std::vector<Chosen> two = {{"rows=513..600", "threads=64 vector=1", 4000},
                                   {"rows=601..1024", "threads=128 vector=2", 5000}};
  for (const std::uint8_t ranks : {std::uint8_t{0}, std::uint8_t{1}}) shelf.put(at(1024, ranks), two);
  CHECK(shelf.serves(at(513, 0)).config == manifest::Config{128, 2});
  CHECK(shelf.serves(at(1024, 0)).config == manifest::Config{128, 2});
  CHECK(shelf.at(at(513, 0)).answers.size() == 1);
  CHECK(shelf.serves(at(513, 1)).config == manifest::Config{64, 1});
  CHECK(shelf.serves(at(601, 1)).config == manifest::Config{128, 2});
}
