#include "engine/estimate.hpp"

#include <algorithm>

#include "engine/lookup.hpp"

namespace kiln::engine {
namespace {

// An H200's, in round figures: it is shares that estimates are made for, and there the machine's scale drops out.
constexpr double bytes_per_ns = 4000;
constexpr double flops_per_ns = 200'000;
constexpr double launch_ns = 2000;

double bound_ns(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device) {
  const auto frame = spec::make_frame(op, nullptr, problem, device);
  const auto amount = [&](const spec::Expression& expression) {
    const spec::Value value = expression.evaluate(frame);
    return value.ok() ? static_cast<double>(value.number) : 0.0;
  };
  return launch_ns + std::max(amount(op.cost_bytes) / bytes_per_ns, amount(op.cost_flops) / flops_per_ns);
}

}  // namespace

double expected_ns(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
                   store::Layers& layers) {
  const auto nearest = nearest_record(op, spec::bucket_of(op, problem), device, regime, layers);
  if (!nearest || !(nearest->record.cost_ns > 0)) return bound_ns(op, problem, device);
  const auto timed = parse_bucket(op, nearest->record.bucket);
  return timed ? nearest->record.cost_ns * relative_cost(op, problem, *timed, device) : bound_ns(op, problem, device);
}

double relative_cost(const spec::Op& op, const Problem& problem, const Problem& other,
                     const spec::DeviceFacts& device) {
  return bound_ns(op, problem, device) / bound_ns(op, other, device);
}

}  // namespace kiln::engine
