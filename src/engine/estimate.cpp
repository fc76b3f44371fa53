#include "engine/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "manifest/key.hpp"
#include "tune/model.hpp"
#include "tune/neighbours.hpp"
#include "tune/prior.hpp"
#include "tune/serving.hpp"

namespace kiln::engine {
namespace {

// An H200's, in round figures: they are for ratios between problems, where the machine's scale drops out.
constexpr double bytes_per_ns = 4000;
constexpr double flops_per_ns = 200'000;
constexpr double launch_ns = 2000;
constexpr std::size_t near_enough = 4;

double bound_ns(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device) {
  const auto frame = manifest::make_frame(op, nullptr, problem, device);
  const auto amount = [&](const manifest::Expression& expression) {
    const manifest::Value value = expression.evaluate(frame);
    return value.ok() ? static_cast<double>(value.number) : 0.0;
  };
  return launch_ns + std::max(amount(op.cost_bytes) / bytes_per_ns, amount(op.cost_flops) / flops_per_ns);
}

/// At the bucket's upper edge; infinite when nothing is expected of anything.
double expected_at_edge(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                        Regime regime, store::Layers& layers) {
  const auto near = tune::neighbours(layers, op, bucket, device, regime, near_enough);
  if (!near.empty() && near.front().key == manifest::record_key(op, bucket, device, regime) &&
      near.front().at_edge().cost_ns > 0)
    return near.front().at_edge().cost_ns;
  const tune::Prior prior(op, bucket, device, regime, near);
  const auto expected = [&](const manifest::Implementation& implementation, const manifest::Config& config) {
    return prior.correction(implementation, config) *
           tune::estimate(op, implementation, bucket, device, config, regime).ns;
  };
  double best = std::numeric_limits<double>::infinity();
  for (const tune::Winner& choice : prior.transferred(near_enough))
    best = std::min(best, expected(*choice.implementation, choice.config));
  const tune::Usable otherwise = tune::default_for(op, bucket, device);
  if (otherwise.implementation != nullptr) best = std::min(best, expected(*otherwise.implementation, otherwise.config));
  return best;
}

}  // namespace

double expected_ns(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers) {
  const Problem bucket = manifest::bucket_of(op, problem);
  const double at_edge = expected_at_edge(op, bucket, device, regime, layers);
  if (!std::isfinite(at_edge) || !(at_edge > 0)) return bound_ns(op, problem, device);
  return at_edge * relative_cost(op, problem, bucket, device);
}

double relative_cost(const manifest::Op& op, const Problem& problem, const Problem& other,
                     const manifest::DeviceFacts& device) {
  return bound_ns(op, problem, device) / bound_ns(op, other, device);
}

}  // namespace kiln::engine
