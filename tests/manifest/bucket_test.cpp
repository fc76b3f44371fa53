#include "manifest/bucket_policy.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <set>

using namespace kiln::manifest;

namespace {

constexpr std::int64_t largest_value = std::numeric_limits<std::int64_t>::max();

const BucketPolicy exact{};
const BucketPolicy pow2{PolicyKind::pow2, 0, {}, {}};
const BucketPolicy steps{PolicyKind::pow2_steps, 256, {{2048, 256}, {4096, 512}}, {}};
const BucketPolicy edges{PolicyKind::edges, 0, {}, {16, 64, 256}};

BucketPolicy random_policy() {
  BucketPolicy policy;
  policy.kind = *rc::gen::element(PolicyKind::exact, PolicyKind::pow2, PolicyKind::pow2_steps, PolicyKind::edges);
  if (policy.kind == PolicyKind::pow2_steps) {
    policy.pow2_until = std::int64_t{1} << *rc::gen::inRange(0, 10);
    std::int64_t until = policy.pow2_until;
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      const std::int64_t step = *rc::gen::inRange<std::int64_t>(1, 700);
      until = (until / step + *rc::gen::inRange<std::int64_t>(1, 6)) * step;
      policy.steps.push_back({until, step});
    }
  }
  if (policy.kind == PolicyKind::edges) {
    const auto drawn =
        *rc::gen::nonEmpty(rc::gen::container<std::set<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 5000)));
    policy.edges.assign(drawn.begin(), drawn.end());
  }
  return policy;
}

}  // namespace

TEST_CASE("each policy has the upper edges that it promises") {
  CHECK(exact.high(37, 100) == 37);
  CHECK(pow2.high(1, 4096) == 1);
  CHECK(pow2.high(33, 4096) == 64);
  CHECK(pow2.high(64, 4096) == 64);
  CHECK(pow2.high(65, 100) == 100);
  CHECK(steps.high(129, 100000) == 256);
  CHECK(steps.high(257, 100000) == 512);
  CHECK(steps.high(2048, 100000) == 2048);
  CHECK(steps.high(2049, 100000) == 2560);
  CHECK(steps.high(4097, 100000) == 8192);
  CHECK(steps.high(70000, 100000) == 100000);
  CHECK(edges.high(17, 4096) == 64);
  CHECK(edges.high(257, 4096) == 4096);
}

TEST_CASE("the lowest value of a bucket follows the edge below it") {
  CHECK(exact.low(37, 1, 100) == 37);
  CHECK(pow2.low(64, 1, 4096) == 33);
  CHECK(pow2.low(1, 1, 4096) == 1);
  CHECK(pow2.low(100, 1, 100) == 65);
  CHECK(pow2.low(64, 40, 4096) == 40);
  CHECK(steps.low(512, 1, 100000) == 257);
  CHECK(steps.low(2560, 1, 100000) == 2049);
  CHECK(steps.low(8192, 1, 100000) == 4097);
  CHECK(edges.low(16, 1, 4096) == 1);
  CHECK(edges.low(4096, 1, 4096) == 257);
}

TEST_CASE("a policy's text names its edges") {
  CHECK(exact.text() == "exact");
  CHECK(pow2.text() == "pow2");
  CHECK(steps.text() == "pow2_steps(256;2048/256;4096/512)");
  CHECK(edges.text() == "edges(16;64;256)");
}

TEST_CASE("no size overflows a bucket") {
  for (const BucketPolicy& policy : {exact, pow2, steps, edges}) {
    CAPTURE(policy.text());
    for (const std::int64_t value :
         {largest_value, largest_value - 1, (std::int64_t{1} << 62) + 1, std::int64_t{1} << 62}) {
      const std::int64_t high = policy.high(value, largest_value);
      CHECK(high >= value);
      CHECK(policy.low(high, 1, largest_value) <= value);
    }
    CHECK(policy.high(0, 100) >= 1);
    CHECK(policy.high(-1, 100) >= 1);
    CHECK(policy.high(largest_value, 100) == 100);
  }
}

TEST_CASE("a value lies within its bucket, whose edges are their own, and buckets keep the order of values") {
  CHECK(rc::check([] {
    const BucketPolicy policy = random_policy();
    const std::int64_t minimum = *rc::gen::inRange<std::int64_t>(1, 50);
    const std::int64_t maximum = *rc::gen::inRange<std::int64_t>(minimum, 10000);
    const std::int64_t value = *rc::gen::inRange<std::int64_t>(minimum, maximum + 1);
    const std::int64_t other = *rc::gen::inRange<std::int64_t>(minimum, maximum + 1);
    RC_LOG(policy.text());
    const std::int64_t high = policy.high(value, maximum);
    const std::int64_t low = policy.low(high, minimum, maximum);
    RC_ASSERT(low <= value);
    RC_ASSERT(value <= high);
    RC_ASSERT(high <= maximum);
    RC_ASSERT(policy.high(high, maximum) == high);
    RC_ASSERT(policy.high(low, maximum) == high);
    if (low > minimum) RC_ASSERT(policy.high(low - 1, maximum) < high);
    if (value <= other) RC_ASSERT(high <= policy.high(other, maximum));
  }));
}
