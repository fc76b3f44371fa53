#include "cli/problem_set.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "cli/runtime_values.hpp"
#include "kiln/error.hpp"
#include "sample_op.hpp"

using namespace kiln;
using namespace kiln::cli;
using kiln::testing::message_of;
using kiln::testing::sample_op;

namespace {

using Words = std::vector<std::string>;

std::vector<std::string> bucket_texts(const Words& words) {
  const manifest::Op op = sample_op();
  std::vector<std::string> texts;
  for (const Problem& bucket : buckets_of(op, parse_problem_set(op, words)))
    texts.push_back(manifest::to_string(op, bucket));
  return texts;
}

std::string words_refusal(const Words& words) {
  return message_of([&] { bucket_texts(words); });
}

}  // namespace

TEST_CASE("a range gives each bucket that it touches once") {
  CHECK(bucket_texts({"rows=3..17", "cols=64", "dtype=f32"}) ==
        Words{"rows=4 cols=64 dtype=f32", "rows=8 cols=64 dtype=f32", "rows=16 cols=64 dtype=f32",
              "rows=32 cols=64 dtype=f32"});
}

TEST_CASE("a list gives its sizes' buckets, without repetition and in order") {
  CHECK(bucket_texts({"cols=64", "rows=100,5,6,7..8,128"}) ==
        Words{"rows=8 cols=64 dtype=bf16", "rows=128 cols=64 dtype=bf16"});
}

TEST_CASE("a range over an exact axis names its legal sizes alone") {
  CHECK(bucket_texts({"rows=1", "cols=10..30"}) == Words{"rows=1 cols=16 dtype=bf16", "rows=1 cols=24 dtype=bf16"});
}

TEST_CASE("types multiply the buckets, and one that is left out takes its first value") {
  CHECK(bucket_texts({"rows=1,2", "cols=8", "dtype=bf16,f32"}).size() == 4);
  CHECK(bucket_texts({"rows=1", "cols=8"}) == Words{"rows=1 cols=8 dtype=bf16"});
}

TEST_CASE("what does not parse is refused with one sentence that names it") {
  CHECK(words_refusal({"rwos=1", "cols=8"}).find("'rwos' is unknown (did you mean 'rows'?)") != std::string::npos);
  CHECK(words_refusal({"rows=1"}).find("axis 'cols' is missing") != std::string::npos);
  CHECK(words_refusal({"rows=1", "rows=2", "cols=8"}).find("'rows' is given twice") != std::string::npos);
  CHECK(words_refusal({"rows=0", "cols=8"}).find("'rows' is 0, expected 1 or more") != std::string::npos);
  CHECK(words_refusal({"rows=-4", "cols=8"}).find("'rows' is -4, expected 1 or more") != std::string::npos);
  CHECK(words_refusal({"rows=1..5000", "cols=8"}).find("'rows' is 5000, expected at most 4096") != std::string::npos);
  CHECK(words_refusal({"rows=9..3", "cols=8"}).find("whose end comes before its beginning") != std::string::npos);
  CHECK(words_refusal({"rows=1", "cols=9"}).find("'cols' is 9, expected a multiple of 8") != std::string::npos);
  CHECK(words_refusal({"rows=1", "cols=9..15"}).find("there is no multiple of 8 from 9 to 15") != std::string::npos);
  CHECK(words_refusal({"rows=99999999999999999999", "cols=8"}).find("which 64 bits cannot hold") != std::string::npos);
  CHECK(words_refusal({"rows=1,", "cols=8"}).find("'rows' is ''") != std::string::npos);
  CHECK(words_refusal({"rows=ten", "cols=8"}).find("'rows' is 'ten', expected a size") != std::string::npos);
  CHECK(words_refusal({"rows", "cols=8"}).find("'rows' is not of the form name=value") != std::string::npos);
  CHECK(words_refusal({"rows=1", "cols=8", "dtype=bf61"}).find("'bf61' (did you mean 'bf16'?)") != std::string::npos);
}

TEST_CASE("a command for one problem refuses ranges and lists") {
  const manifest::Op op = sample_op();
  CHECK(message_of([&] {
          parse_problem(op, Words{"rows=1..2", "cols=8"});
        }).find("this command takes one problem") != std::string::npos);
  CHECK(parse_problem(op, Words{"rows=5", "cols=8"}).axes[0] == 5);
}

TEST_CASE("run-time values are told from sizes, and must be numbers of their type") {
  const manifest::Op op = sample_op();
  Words words{"rows=1", "bias=2.5", "cols=8", "stride=16"};
  const tune::Placement placement = take_runtime_values(op, words);
  CHECK(words == Words{"rows=1", "cols=8"});
  REQUIRE(placement.runtime.size() == 1);
  CHECK(placement.runtime[0].second == 16);
  REQUIRE(placement.reals.size() == 1);
  CHECK(placement.reals[0].second == 2.5);
  words = {"stride=1.5"};
  CHECK(message_of([&] {
          take_runtime_values(op, words);
        }).find("run-time value 'stride' is '1.5', expected an integer") != std::string::npos);
  words = {"bias=1", "bias=2"};
  CHECK(message_of([&] { take_runtime_values(op, words); }).find("'bias' is given twice") != std::string::npos);
}

TEST_CASE("more buckets than anyone can want are refused before they are made") {
  const manifest::Op op = sample_op();
  const ProblemSet set = parse_problem_set(op, Words{"rows=1..4096", "cols=8..1024"});
  CHECK_THROWS_AS(buckets_of(op, set, 100), Error);
  CHECK(buckets_of(op, set).size() == 13 * 128);
}

TEST_CASE("a sample problem fills in the axes that were not given with legal sizes") {
  const manifest::Op op = sample_op();
  CHECK(manifest::to_string(op, sample_problem(op, Words{"rows=3"})) == "rows=3 cols=1024 dtype=bf16");
}

TEST_CASE("every size of a range lies in a bucket that the range gives, and every bucket holds one") {
  const manifest::Op op = sample_op();
  CHECK(rc::check([&] {
    const auto low = *rc::gen::inRange<std::int64_t>(1, 4097);
    const auto high = *rc::gen::inRange<std::int64_t>(low, 4097);
    const auto buckets = buckets_of(
        op, parse_problem_set(op, Words{"rows=" + std::to_string(low) + ".." + std::to_string(high), "cols=8"}));
    std::vector<std::int64_t> expected;
    for (std::int64_t rows = low; rows <= high; ++rows) {
      Problem problem;
      problem.axes[0] = rows;
      problem.axes[1] = 8;
      expected.push_back(manifest::bucket_of(op, problem).axes[0]);
    }
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    RC_ASSERT(buckets.size() == expected.size());
    for (std::size_t i = 0; i < buckets.size(); ++i) RC_ASSERT(buckets[i].axes[0] == expected[i]);
  }));
}

TEST_CASE("the axis of a team is the number of ranks, given or not, and no other") {
  const manifest::Catalogue ops({});
  const manifest::Op& gather = find_op(ops, "all_gather");
  const auto worlds = [&](const Words& words, int world) {
    std::vector<std::int64_t> found;
    for (const Problem& bucket : buckets_of(gather, parse_problem_set(gather, words, world)))
      found.push_back(bucket.axes[static_cast<std::size_t>(gather.team_axis())]);
    return found;
  };
  CHECK(worlds({"rows=8", "cols=64"}, 4) == std::vector<std::int64_t>{4});
  CHECK(worlds({"rows=8", "cols=64", "world=4"}, 4) == std::vector<std::int64_t>{4});
  CHECK(worlds({"rows=8", "cols=64", "world=2,4"}, 0) == std::vector<std::int64_t>{2, 4});
  const auto refusal = [&](const Words& words, int world) { return message_of([&] { worlds(words, world); }); };
  CHECK(refusal({"rows=8", "cols=64"}, 0) ==
        "op 'all_gather': axis 'world' is missing, expected world=SIZE, a list or a range");
  for (const auto& [given, shown] : {std::pair("world=2", "2"), {"world=2,4", "2,4"}, {"world=2..4", "2..4"}})
    CHECK(refusal({"rows=8", "cols=64", given}, 4) ==
          std::string("op 'all_gather': axis 'world' is ") + shown +
              ", and the command runs on 4 ranks; give world=4, or leave it out");
  CHECK(refusal({"rows=8", "cols=64"}, 65) == "op 'all_gather': axis 'world' is 65, expected at most 64");
}
