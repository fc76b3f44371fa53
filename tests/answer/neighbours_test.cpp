#include "answer/neighbours.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "near_fixture.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

TEST_CASE("distance counts the doublings of each axis, whatever the volume") {
  const manifest::Op op = rows_op();
  CHECK(axis_distance(op, sized(64, 4096), sized(64, 4096)) == 0);
  CHECK(axis_distance(op, sized(64, 4096), sized(256, 4096)) == 2);
  CHECK(axis_distance(op, sized(1, 4096), sized(4096, 1)) == 24);
  CHECK(rc::check("it is a metric", [&op] {
    const auto any = rc::gen::inRange<std::int64_t>(1, 1 << 20);
    const Problem a = sized(*any, *any), b = sized(*any, *any), c = sized(*any, *any);
    RC_ASSERT(axis_distance(op, a, b) == axis_distance(op, b, a));
    RC_ASSERT(axis_distance(op, a, c) <= axis_distance(op, a, b) + axis_distance(op, b, c) + 1e-9);
  }));
}

TEST_CASE("a device of the same architecture is nearer than one of another") {
  CHECK(device_distance(h200(), h200()) == 0);
  CHECK(device_distance(h200(), device_of(h100_class)) > 0);
  CHECK(device_distance(h200(), device_of(h100_class)) < 1);
  CHECK(device_distance(h200(), device_of(a100_class)) > 4);
}

TEST_CASE("neighbours are the nearest of this device, then those of similar ones, with their candidates") {
  const manifest::Op op = rows_op();
  store::Layers layers({});
  const auto put = [&](std::int64_t rows, const char* device_class) {
    store::Record record = record_of(op, sized(rows, 4096), "threads=256 vector=4", 1000, device_class);
    record.candidates = {candidate_of(rows, "threads=256 vector=4", 1000),
                         candidate_of(rows, "threads=128 vector=4", 1100)};
    layers.put_all(std::vector{record}, {});
  };
  put(64, a100_class);
  put(64, h100_class);
  put(32, h200_class);
  put(4096, h200_class);
  put(256, h200_class);
  const auto order = [&](std::size_t at_most) {
    std::vector<std::string> found;
    for (const store::Record& each : neighbours(layers, {{op, h200(), Regime::cold_l2}, sized(64, 4096)}, at_most)) {
      CHECK(each.candidates.size() == 2);
      found.push_back(each.bucket.substr(0, each.bucket.find(' ')) + " " + each.device_class.substr(0, 11));
    }
    return found;
  };
  CHECK(order(9) == std::vector<std::string>{"rows=32 sm_90/mp132", "rows=256 sm_90/mp132", "rows=4096 sm_90/mp132",
                                             "rows=64 sm_90/mp132", "rows=64 sm_80/mp108"});
  CHECK(order(2).size() == 2);
}

TEST_CASE("records of another regime, revision, type, or of axes that are no more, are no neighbours") {
  const manifest::Op op = rows_op();
  store::Layers layers({});
  store::Record hot = record_of(op, sized(32, 4096), "threads=256 vector=4", 1000);
  hot.key = "hot", hot.regime = "hot";
  store::Record revised = record_of(op, sized(32, 4096), "threads=256 vector=4", 1000);
  revised.key = "revised", revised.revision = 1;
  store::Record renamed = record_of(op, sized(32, 4096), "threads=256 vector=4", 1000);
  renamed.key = "renamed", renamed.bucket = "lines=32 cols=4096 dtype=f32";
  Problem typed = sized(32, 4096);
  typed.selections[0] = 1;
  layers.put_all(std::vector{hot, revised, renamed, record_of(op, typed, "threads=256 vector=4", 1000)}, {});
  CHECK(layers.records("rows").size() == 4);
  CHECK(near_records(layers, {{op, h200(), Regime::cold_l2}, sized(64, 4096)}).empty());
}
