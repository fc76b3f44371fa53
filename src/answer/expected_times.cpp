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
#include "manifest/key.hpp"

namespace kiln::answer {
namespace {

// Rates of an H200, rounded. Only ratios between problems are used, in which the scale cancels.
constexpr double bytes_per_ns = 4000;
constexpr double flops_per_ns = 200'000;
constexpr double usual_launch_ns = 2000;
constexpr std::size_t near_enough = 4;
// The model's slowdown where no candidates are known: the median over gemm's records on an H100, each without those of its n and k.
constexpr double usual_guess = 1.05;

double bound_ns(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device) {
  const auto frame = manifest::make_frame(op, nullptr, problem, device);
  const auto amount = [&](const manifest::Expression& expression) {
    const manifest::Value value = expression.evaluate(frame);
    return value.ok() ? static_cast<double>(value.number) : 0.0;
  };
  return usual_launch_ns + std::max(amount(op.cost_bytes) / bytes_per_ns, amount(op.cost_flops) / flops_per_ns);
}

/// Expected time at the bucket's upper edge; infinite where neither records nor the model tell.
double expected_at_edge(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                        Regime regime, NearIndex& records) {
  const auto near = records.nearest(bucket, near_enough);
  if (!near.empty() && near.front().key == manifest::record_key(op, bucket, device, regime) &&
      near.front().at_edge().cost_ns > 0)
    return near.front().at_edge().cost_ns;
  const Prior prior(op, bucket, device, regime, near);
  const auto expected = [&](const manifest::Implementation& implementation, const manifest::Config& config) {
    return prior.correction(implementation, config) * estimate(op, implementation, bucket, device, config, regime).ns;
  };
  double best = std::numeric_limits<double>::infinity();
  for (const Winner& choice : prior.transferred(near_enough))
    best = std::min(best, expected(*choice.implementation, choice.config));
  const Usable otherwise = default_for(op, bucket, device);
  if (otherwise.implementation != nullptr) best = std::min(best, expected(*otherwise.implementation, otherwise.config));
  return best;
}

/// The model's estimate of the answer over that of the config that it expects to be the fastest; nothing where the implementation has no model.
std::optional<double> modelled_slowdown(const manifest::Op& op, const Answer& answer,
                                        const manifest::DeviceFacts& device, Regime regime) {
  if (!has_model(*answer.implementation)) return std::nullopt;
  const Expected best = fastest_expected(op, answer.at, answer.at, device, regime);
  const double ratio = estimate(op, *answer.implementation, answer.at, device, answer.config, regime).ns / best.ns;
  return std::isfinite(ratio) ? std::optional(std::max(ratio, 1.0)) : std::nullopt;
}

}  // namespace

double ExpectedTimes::of(const manifest::Op& op, const Problem& problem) {
  auto index = indexes_.find(&op);
  if (index == indexes_.end()) index = indexes_.try_emplace(&op, layers_, op, device_, regime_).first;
  const Problem bucket = manifest::bucket_of(op, problem);
  const double at_edge = expected_at_edge(op, bucket, device_, regime_, index->second);
  if (!std::isfinite(at_edge) || !(at_edge > 0)) return bound_ns(op, problem, device_);
  return at_edge * relative_cost(op, problem, bucket, device_);
}

std::int64_t ExpectedTimes::compared() const {
  std::int64_t sum = 0;
  for (const auto& [op, index] : indexes_) sum += index.compared();
  return sum;
}

double expected_ns(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers) {
  return ExpectedTimes(device, regime, layers).of(op, problem);
}

double relative_cost(const manifest::Op& op, const Problem& problem, const Problem& other,
                     const manifest::DeviceFacts& device) {
  return bound_ns(op, problem, device) / bound_ns(op, other, device);
}

double expected_slowdown(const manifest::Op& op, const Answer& answer, const Problem& bucket,
                         const manifest::DeviceFacts& device, Regime regime, store::Layers& layers) {
  if (answer.is_hit()) return 1;
  const auto known = known_near(layers, op, bucket, device, regime);
  const Usable usable{answer.implementation, answer.config, {}};
  std::optional<double> expected;
  switch (answer.origin) {
    case Origin::nearest: expected = transfer_slowdown(op, known, answer.distance); break;
    case Origin::model: return guess_slowdown(op, known, regime).value_or(usual_guess);
    default: expected = default_slowdown(op, known, usable); break;
  }
  if (!expected) expected = modelled_slowdown(op, answer, device, regime);
  return expected ? *expected : slowdown_over_bound(op, usable, answer.at, device, regime);
}

}  // namespace kiln::answer
