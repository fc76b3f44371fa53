#include "manifest/bucketing.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "manifest/problem.hpp"

using namespace kiln::manifest;

namespace {

constexpr std::int64_t largest_length = std::numeric_limits<std::int64_t>::max();

/// A plain one is exact or in powers of two.
BucketPolicy random_policy(bool plain) {
  BucketPolicy policy;
  policy.kind = plain
                    ? *rc::gen::element(PolicyKind::exact, PolicyKind::pow2)
                    : *rc::gen::element(PolicyKind::exact, PolicyKind::pow2, PolicyKind::pow2_steps, PolicyKind::edges);
  if (policy.kind == PolicyKind::pow2_steps) {
    policy.pow2_until = 256;
    policy.steps = {{2048, 256}, {4096, 512}};
  }
  if (policy.kind == PolicyKind::edges) {
    const auto drawn =
        *rc::gen::nonEmpty(rc::gen::container<std::set<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 5000)));
    policy.edges.assign(drawn.begin(), drawn.end());
  }
  return policy;
}

/// The multiples of a plain one are those of a power of two.
Axis random_axis(bool plain) {
  Axis axis;
  axis.policies.front().policy = random_policy(plain);
  axis.multiple_of = plain ? *rc::gen::element<std::int64_t>(1, 2, 8, std::int64_t{1} << 40)
                           : *rc::gen::element<std::int64_t>(1, 2, 3, 7, 8, 24, 48, 1000003, std::int64_t{1} << 40);
  axis.minimum = *rc::gen::inRange<std::int64_t>(1, 50);
  axis.maximum = *rc::gen::element<std::int64_t>(64, 1000, 4096, 1000000, std::int64_t{1} << 62, largest_length);
  return axis;
}

/// Gives some axes policies that selections decide: often one selection for all axes, else any.
void decide_policies(Op& op, bool plain) {
  for (std::size_t i = 0; i < op.selections.size(); ++i) op.selections[i].name = fmt::format("s{}", i);
  Symbols symbols;
  for (std::size_t i = 0; i < op.axes.size(); ++i) symbols.add(fmt::format("a{}", i));
  for (const Selection& each : op.selections) symbols.add(each.name);
  const auto any = [&] { return *rc::gen::inRange<std::size_t>(0, op.selections.size()); };
  const std::size_t one = any();
  const bool only_one = *rc::gen::arbitrary<bool>();
  for (Axis& axis : op.axes) {
    for (int cases = *rc::gen::inRange(0, 3); cases > 0; --cases) {
      const std::size_t selection = only_one ? one : any();
      const auto value = *rc::gen::inRange<std::size_t>(0, op.selections[selection].values.size());
      const std::string when = fmt::format("s{} {} {}", selection, *rc::gen::element("==", ">="), value);
      axis.policies.insert(axis.policies.begin(), {Expression::parse(when, symbols), random_policy(plain)});
    }
  }
}

Op random_op() {
  Op op;
  const bool plain = *rc::gen::arbitrary<bool>();  // all of them
  for (int i = *rc::gen::inRange(1, kiln::max_axes + 1); i > 0; --i) op.axes.push_back(random_axis(plain));
  for (int i = *rc::gen::inRange(0, kiln::max_selections + 1); i > 0; --i)
    op.selections.push_back({"", std::vector<std::string>(*rc::gen::inRange<std::size_t>(1, 65)), {}});
  if (!op.selections.empty()) decide_policies(op, plain);
  return op;
}

/// Mostly near what the axis takes, so that both answers are met often.
std::int64_t random_size(const Axis& axis) {
  const std::int64_t any = *rc::gen::element(0, 1, 1, 1) == 0
                               ? *rc::gen::arbitrary<std::int64_t>()
                               : *rc::gen::inRange<std::int64_t>(0, std::min<std::int64_t>(axis.maximum, 10000) + 2);
  if (any < 0 || *rc::gen::inRange(0, 8) == 0) return any;
  const std::int64_t down = any / axis.multiple_of * axis.multiple_of;
  return down >= axis.minimum || down > largest_length - axis.multiple_of ? down : down + axis.multiple_of;
}

Problem random_problem(const Op& op) {
  Problem problem;
  // What the op does not have may hold anything.
  for (std::int64_t& size : problem.axes) size = *rc::gen::arbitrary<std::int64_t>();
  for (std::uint8_t& selection : problem.selections) selection = *rc::gen::arbitrary<std::uint8_t>();
  for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = random_size(op.axes[i]);
  const bool off = *rc::gen::inRange(0, 8) == 0;
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    if (!off) problem.selections[i] = static_cast<std::uint8_t>(problem.selections[i] % op.selections[i].values.size());
  return problem;
}

}  // namespace

TEST_CASE("the walk of the hit path finds the bucket that bucket_of finds, and refuses what is_valid refuses") {
  int valid = 0, refused = 0;
  CHECK(rc::check([&] {
    const Op op = random_op();
    const Bucketing bucketing(op);
    for (int i = 0; i < 20; ++i) {
      const Problem problem = random_problem(op);
      BucketWords found;
      const bool is_found = bucketing.find(problem, found);
      RC_ASSERT(is_found == is_valid(op, problem));
      if (!is_found) RC_ASSERT(!bucketing.is_in(problem, found.words.data()));
      if (!is_found) {
        ++refused;
        continue;
      }
      ++valid;
      const Problem bucket = bucket_of(op, problem);
      const BucketWords expected = bucketing.form().words_of(bucket);
      RC_ASSERT(found.hash == expected.hash);
      RC_ASSERT(bucketing.form().equal(found.words.data(), expected.words.data()));
      RC_ASSERT(bucketing.is_in(problem, expected.words.data()));
      Problem other = bucket;
      other.axes[op.axes.size() - 1] ^= 1;
      RC_ASSERT(!bucketing.is_in(problem, bucketing.form().words_of(other).words.data()));
      RC_ASSERT(!bucketing.form().equal(found.words.data(), bucketing.form().words_of(other).words.data()));
      if (op.selections.empty()) continue;
      other = bucket;
      other.selections[op.selections.size() - 1] ^= 1;
      const BucketWords elsewhere = bucketing.form().words_of(other);
      RC_ASSERT(!bucketing.is_in(problem, elsewhere.words.data()));
      RC_ASSERT(!bucketing.form().equal(found.words.data(), elsewhere.words.data()));
      RC_ASSERT(found.hash != elsewhere.hash);
    }
  }));
  CHECK(valid > 100);
  CHECK(refused > 100);
}

TEST_CASE("every built-in op is bucketed alike by the walk and by bucket_of, at each power of two and beside it") {
  for (const Op& op : load_ops({})) {
    CAPTURE(op.name);
    const Bucketing bucketing(op);
    for (int shift = 0; shift < 63; ++shift)
      for (const std::int64_t beside : {-1, 0, 1}) {
        Problem problem;
        for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = (std::int64_t{1} << shift) + beside;
        BucketWords found;
        REQUIRE(bucketing.find(problem, found) == is_valid(op, problem));
        if (!is_valid(op, problem)) continue;
        const BucketWords expected = bucketing.form().words_of(bucket_of(op, problem));
        REQUIRE(bucketing.form().equal(found.words.data(), expected.words.data()));
      }
  }
}
