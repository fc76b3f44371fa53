#include "answer/expected_times.hpp"

#include <fmt/format.h>

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

Slowdown of_model(const manifest::Bucket& bucket, std::span<const KnownRecord> known) {
  if (const auto measured = guess_slowdown(*bucket.op, known, bucket.regime))
    return {*measured, "the median of the model's choices for near records, as their tunes timed them"};
  if (known.empty()) return {0, "no record is near, and nothing timed the model's choice"};
  const double distance = axis_distance(*bucket.op, known.front().bucket, bucket.edge) +
                          device_distance(known.front().device, *bucket.device);
  if (const auto measured = benchmarked_slowdown(bucket, distance))
    return {measured->median,
            fmt::format("the median of {} such choices in a benchmark; 95 % took at most {:.2f} times",
                        measured->problems, measured->most)};
  return {0, "no near record has the times of its candidates"};
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

Slowdown expected_slowdown(const manifest::Bucket& bucket, const Answer& answer, store::Layers& layers) {
  if (answer.is_hit()) return {1, {}};
  const auto known = known_near(layers, bucket);
  if (answer.origin == Origin::model) return of_model(bucket, known);
  const bool is_near = answer.origin == Origin::nearest;
  if (const auto measured =
          is_near ? transfer_slowdown(*bucket.op, known, answer.distance) : default_slowdown(*bucket.op, known, answer))
    return {*measured, is_near ? "the median of records' configs in buckets as far from their own"
                               : "the median of this default in near records"};
  if (const auto modelled = modelled_slowdown(bucket, answer))
    return {*modelled, known.empty() ? "by the cost model alone: nothing near was timed" : "by the cost model"};
  return {0, "no near record timed it, and it has no cost model"};
}

}  // namespace kiln::answer
