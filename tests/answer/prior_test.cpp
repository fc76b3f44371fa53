#include "answer/prior.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "answer/model.hpp"
#include "near_fixture.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

namespace {

using CostSurface = std::function<double(const Problem&, const manifest::Config&)>;

// Returns a record with every legal config as a candidate, timed by the surface.
store::Record tuned(const manifest::Op& op, const Problem& bucket, const CostSurface& surface,
                    const std::string& device_class = h200_class) {
  const manifest::Implementation& fast = op.implementations.front();
  store::Record record = record_of(op, bucket, "", std::numeric_limits<double>::infinity(), device_class);
  for (const manifest::Config& config : manifest::search_space({op, device_of(device_class)}, fast, bucket)) {
    record.candidates.push_back(
        candidate_of(bucket.axes[0], manifest::to_string(fast, config), surface(bucket, config)));
    store::Choice& choice = record.choices.front();
    if (record.candidates.back().cost_ns >= choice.cost_ns) continue;
    choice.cost_ns = record.candidates.back().cost_ns;
    choice.config = record.candidates.back().config;
  }
  return record;
}

Prior prior_of(const manifest::Op& op, const Problem& bucket, const std::vector<store::Record>& neighbours) {
  return {{{op, h200()}, bucket}, neighbours};
}

double modelled_ns(const manifest::Op& op, const Problem& bucket, const manifest::Config& config) {
  return estimate({op, h200()}, manifest::Variant{&op.implementations.front(), config}, bucket).ns;
}

double expected(const Prior& prior, const manifest::Op& op, const Problem& bucket, const manifest::Config& config) {
  return modelled_ns(op, bucket, config) * prior.correction({&op.implementations.front(), config});
}

// Returns the time of the config that is expected to be fastest over that of the fastest.
double regret(const manifest::Op& op, const Problem& bucket, const Prior& prior, const CostSurface& surface) {
  const manifest::Implementation& fast = op.implementations.front();
  const auto space = manifest::search_space({op, h200()}, fast, bucket);
  const auto expects = [&](const manifest::Config& config) { return expected(prior, op, bucket, config); };
  const auto taken = [&](const manifest::Config& config) { return surface(bucket, config); };
  return taken(*std::ranges::min_element(space, {}, expects)) / taken(*std::ranges::min_element(space, {}, taken));
}

}  // namespace

TEST_CASE("without neighbours the expectation is the model's") {
  const manifest::Op op = rows_op();
  const Prior prior = prior_of(op, sized(64, 4096), {});
  CHECK(prior.correction({&op.implementations.front(), {128, 4}}) == 1);
  CHECK(prior.transferred(4).empty());
}

TEST_CASE("what was measured in this very bucket is expected again") {
  const manifest::Op op = rows_op();
  const CostSurface surface = [](const Problem&, const manifest::Config& config) {
    return 5000.0 + static_cast<double>(config[0] % 7) * 400 + static_cast<double>(config[1]) * 90;
  };
  const Prior prior = prior_of(op, sized(64, 4096), {tuned(op, sized(64, 4096), surface)});
  for (const manifest::Config& config :
       manifest::search_space({op, h200()}, op.implementations.front(), sized(64, 4096)))
    CHECK(expected(prior, op, sized(64, 4096), config) ==
          doctest::Approx(surface(sized(64, 4096), config)).epsilon(0.1));
}

TEST_CASE("a surface that the model does not foresee is learnt from two buckets beside it") {
  const manifest::Op op = rows_op();
  int draws = 0, behind = 0;
  CHECK(rc::check("the config expected to be fastest is nearly so", [&] {
    // Each config and each bucket deviates from the model by a factor of its own.
    std::mt19937 random(*rc::gen::arbitrary<unsigned>());
    std::uniform_real_distribution<double> factor(-0.4, 0.4);
    std::map<manifest::Config, double> of_config;
    std::map<std::int64_t, double> of_bucket;
    const CostSurface surface = [&](const Problem& bucket, const manifest::Config& config) {
      const double own = of_config.try_emplace(config, factor(random)).first->second;
      const double all = of_bucket.try_emplace(bucket.axes[0], factor(random)).first->second;
      return modelled_ns(op, bucket, config) * std::exp(own + all);
    };
    const std::int64_t rows = std::int64_t{1} << *rc::gen::inRange(2, 14);
    const Prior prior = prior_of(
        op, sized(rows, 4096), {tuned(op, sized(rows / 2, 4096), surface), tuned(op, sized(rows * 2, 4096), surface)});
    const double slowdown = regret(op, sized(rows, 4096), prior, surface);
    ++draws;
    if (slowdown >= 1.1) ++behind;
    RC_ASSERT(slowdown < 1.15);
  }));
  CHECK(50 * behind <= draws);  // a rare draw among thousands passes 1.1
}

TEST_CASE("the nearer of two neighbours that disagree is believed") {
  const manifest::Op op = rows_op();
  const CostSurface wide = [&](const Problem& bucket, const manifest::Config& config) {
    return modelled_ns(op, bucket, config) * (config[0] == 1024 ? 0.3 : 1);
  };
  const CostSurface narrow = [&](const Problem& bucket, const manifest::Config& config) {
    return modelled_ns(op, bucket, config) * (config[0] == 32 ? 0.3 : 1);
  };
  const manifest::Implementation& fast = op.implementations.front();
  const auto prefers_wide = [&](const Prior& prior) {
    return prior.correction({&fast, {1024, 1}}) < prior.correction({&fast, {32, 1}});
  };
  CHECK(prefers_wide(
      prior_of(op, sized(64, 4096), {tuned(op, sized(128, 4096), wide), tuned(op, sized(1024, 4096), narrow)})));
  CHECK_FALSE(prefers_wide(
      prior_of(op, sized(64, 4096), {tuned(op, sized(1024, 4096), wide), tuned(op, sized(32, 4096), narrow)})));
  // Another device's measurement counts for less than this one's, at the same bucket.
  const std::string a100 = "sm_80/mp108/l2_41943040/smem_166912/bus_5120";
  CHECK(prefers_wide(
      prior_of(op, sized(64, 4096), {tuned(op, sized(64, 4096), narrow, a100), tuned(op, sized(128, 4096), wide)})));
}

TEST_CASE("a config that was not measured is judged by those like it") {
  const manifest::Op op = rows_op();
  store::Record record = tuned(op, sized(64, 4096), [&](const Problem& bucket, const manifest::Config& config) {
    return modelled_ns(op, bucket, config) * (config[0] >= 512 ? 4 : 1);
  });
  std::erase_if(record.candidates,
                [](const store::TriedCandidate& each) { return each.config == "threads=1024 vector=2"; });
  const Prior prior = prior_of(op, sized(64, 4096), {record});
  CHECK(prior.correction({&op.implementations.front(), {1024, 2}}) > 2);
}

TEST_CASE("candidates that failed teach nothing, nor do records of another revision, regime or type") {
  const manifest::Op op = rows_op();
  const double plain = modelled_ns(op, sized(64, 4096), {128, 4});
  store::Record failed = record_of(op, sized(64, 4096), "threads=128 vector=4", 0);
  failed.candidates = {candidate_of(64, "threads=128 vector=4", 100 * plain)};
  failed.candidates[0].verdict = store::Verdict::wrong_result;
  store::Record revised = record_of(op, sized(64, 4096), "threads=128 vector=4", 100 * plain);
  revised.revision = 1;
  store::Record hot = record_of(op, sized(64, 4096), "threads=128 vector=4", 100 * plain);
  hot.regime = "hot";
  Problem other_type = sized(64, 4096);
  other_type.selections[0] = 1;
  const store::Record typed = record_of(op, other_type, "threads=128 vector=4", 100 * plain);
  const Prior prior = prior_of(op, sized(64, 4096), {failed, revised, hot, typed});
  CHECK(prior.correction({&op.implementations.front(), {128, 4}}) == 1);
}

TEST_CASE("winners of neighbours are transferred once each, in their order, when they are legal here") {
  const manifest::Op op = rows_op();
  const std::vector<store::Record> records = {record_of(op, sized(128, 8192), "threads=1024 vector=8", 1000),
                                              record_of(op, sized(32, 4096), "threads=256 vector=4", 1000),
                                              record_of(op, sized(256, 4096), "threads=256 vector=4", 1000),
                                              record_of(op, sized(512, 4096), "threads=7 vector=4", 1000),
                                              record_of(op, sized(1024, 4096), "threads=64 vector=2", 1000)};
  const auto transferred = prior_of(op, sized(64, 4096), records).transferred(8);
  REQUIRE(transferred.size() == 2);  // 1024 * 8 is longer than the row, 7 is not declared
  CHECK(transferred[0].config == manifest::Config{256, 4});
  CHECK(transferred[1].config == manifest::Config{64, 2});
  CHECK(transferred[0].implementation == &op.implementations.front());
  CHECK(prior_of(op, sized(64, 4096), records).transferred(1).size() == 1);
}

TEST_CASE("samples at several lengths of a bucket teach as much as the mean of them") {
  const manifest::Op op = rows_op();
  const auto at = [&](std::int64_t rows, double factor) {
    return candidate_of(rows, "threads=128 vector=4", factor * modelled_ns(op, sized(rows, 4096), {128, 4}));
  };
  store::Record several = record_of(op, sized(64, 4096), "threads=128 vector=4", 1);
  store::Record one = several;
  several.candidates = {at(40, 2), at(64, 8),
                        candidate_of(64, "threads=32 vector=1", modelled_ns(op, sized(64, 4096), {32, 1}))};
  one.candidates = {at(64, 4), several.candidates[2]};
  const manifest::Implementation& fast = op.implementations.front();
  CHECK(prior_of(op, sized(64, 4096), {several}).correction({&fast, {128, 4}}) ==
        doctest::Approx(prior_of(op, sized(64, 4096), {one}).correction({&fast, {128, 4}})));
}

TEST_CASE("of a record of several configs all are transferred, that of the upper edge first") {
  const manifest::Op op = rows_op();
  store::Record record = record_of(op, sized(128, 4096), "threads=256 vector=4", 1000);
  store::Choice lower = record.choices.front();
  lower.config = "threads=64 vector=2";
  lower.sizes = "rows=65..96";
  record.choices.front().sizes = "rows=97..128";
  record.choices.insert(record.choices.begin(), lower);
  const auto transferred = prior_of(op, sized(64, 4096), {record}).transferred(8);
  REQUIRE(transferred.size() == 2);
  CHECK(transferred[0].config == manifest::Config{256, 4});
  CHECK(transferred[1].config == manifest::Config{64, 2});
}
