#include "answer/expected_times.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "answer/guess.hpp"
#include "answer/model.hpp"
#include "answer/neighbours.hpp"
#include "answer/prior.hpp"
#include "answer/serving.hpp"
#include "answer/slowdown.hpp"

namespace kiln::answer {
namespace {

// Rates of an H200, rounded. Only ratios between problems are used, in which the scale cancels.
constexpr double bytes_per_ns = 4000;
constexpr double flops_per_ns = 200'000;
constexpr double usual_launch_ns = 2000;
constexpr std::size_t near_enough = 4;
// The model's slowdown where no candidates are known: the median over gemm's records on an H100, each without those of
// its n and k.
constexpr double usual_guess = 1.05;

double bound_ns(const manifest::Site& site, const Problem& problem) {
  const auto frame = manifest::frame_of(site, problem);
  const auto amount = [&](const manifest::Expression& expression) {
    const manifest::Value value = expression.evaluate(frame);
    return value.ok() ? static_cast<double>(value.number) : 0.0;
  };
  return usual_launch_ns +
         std::max(amount(site.op->cost_bytes) / bytes_per_ns, amount(site.op->cost_flops) / flops_per_ns);
}

/// Expected time at the bucket's upper edge; infinite where neither records nor the model tell.
double expected_at_edge(const manifest::Bucket& bucket, NearIndex& records) {
  const auto near = records.nearest(bucket.edge, near_enough);
  if (!near.empty() && near.front().key == bucket.key() && near.front().at_edge().cost_ns > 0)
    return near.front().at_edge().cost_ns;
  const Prior prior(bucket, near);
  std::vector<manifest::Variant> known = prior.transferred(near_enough);
  if (Usable otherwise = default_for(bucket, bucket.edge)) known.push_back(std::move(otherwise));
  double best = std::numeric_limits<double>::infinity();
  for (const manifest::Variant& each : known)
    best = std::min(best, prior.correction(each) * estimate(bucket, each, bucket.edge).ns);
  return best;
}

/// The model's estimate of the answer over that of the config that it expects to be the fastest; nothing where the
/// implementation has no model.
std::optional<double> modelled_slowdown(const manifest::Site& site, const Answer& answer) {
  if (!has_model(*answer.implementation)) return std::nullopt;
  const double ratio = estimate(site, answer, answer.at).ns / fastest_expected(site, answer.at, answer.at).ns;
  return std::isfinite(ratio) ? std::optional(std::max(ratio, 1.0)) : std::nullopt;
}

}  // namespace

double ExpectedTimes::of(const manifest::Op& op, const Problem& problem) {
  const manifest::Site site(op, device_, regime_);
  const auto index = indexes_.try_emplace(&op, layers_, site).first;
  const manifest::Bucket bucket = site.bucket_of(problem);
  const double at_edge = expected_at_edge(bucket, index->second);
  if (!std::isfinite(at_edge) || !(at_edge > 0)) return bound_ns(site, problem);
  return at_edge * relative_cost(site, problem, bucket.edge);
}

std::int64_t ExpectedTimes::compared() const {
  std::int64_t sum = 0;
  for (const auto& [op, index] : indexes_) sum += index.compared();
  return sum;
}

double expected_ns(const manifest::Site& site, const Problem& problem, store::Layers& layers) {
  return ExpectedTimes(*site.device, site.regime, layers).of(*site.op, problem);
}

double relative_cost(const manifest::Site& site, const Problem& problem, const Problem& other) {
  return bound_ns(site, problem) / bound_ns(site, other);
}

double expected_slowdown(const manifest::Bucket& bucket, const Answer& answer, store::Layers& layers) {
  if (answer.is_hit()) return 1;
  const auto known = known_near(layers, bucket);
  std::optional<double> expected;
  switch (answer.origin) {
    case Origin::nearest: expected = transfer_slowdown(*bucket.op, known, answer.distance); break;
    case Origin::model: return guess_slowdown(*bucket.op, known, bucket.regime).value_or(usual_guess);
    default: expected = default_slowdown(*bucket.op, known, answer); break;
  }
  if (!expected) expected = modelled_slowdown(bucket, answer);
  return expected ? *expected : slowdown_over_bound(bucket, answer, answer.at);
}

}  // namespace kiln::answer
