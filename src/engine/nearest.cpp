// Which record stands in for one that is missing.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/lookup.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"
#include "tune/neighbours.hpp"

namespace kiln::engine {
namespace {

// Between buckets that are about as far, such as the next smaller and the next larger one, distance does not tell which serves
// better; how blocks fill the device does. H200, each bucket of gemm served by the others: a 95th percentile of 1.06 of the
// best time with this, of 1.48 by distance alone.
constexpr double about_as_near = 1 + 1e-9;  // doublings

struct Contender {
  tune::NearRecord near;
  tune::Usable usable;
  double expected_ns = 0;
};

double expected_ns(const spec::Op& op, const Contender& contender, const Problem& bucket,
                   const spec::DeviceFacts& device, Regime regime) {
  const spec::Implementation& implementation = *contender.usable.implementation;
  const spec::Config& config = contender.usable.config;
  const double here = tune::estimate(op, implementation, bucket, device, config, regime).ns;
  const double there =
      tune::estimate(op, implementation, contender.near.bucket, contender.near.device, config, regime).ns;
  const double expected = contender.near.found.value.cost_ns * (here / there);
  return std::isfinite(expected) && expected > 0 ? expected : std::numeric_limits<double>::infinity();
}

}  // namespace

std::optional<Nearest> nearest_record(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device,
                                      Regime regime, store::Layers& layers) {
  const Problem bucket = spec::bucket_of(op, problem);
  std::vector<Contender> contenders;
  for (tune::NearRecord& near : tune::near_records(layers, op, bucket, device, regime)) {
    if (!contenders.empty()) {
      const tune::NearRecord& first = contenders.front().near;
      if (near.same_device != first.same_device || near.distance > first.distance + about_as_near) break;
    }
    tune::Usable usable = tune::usable(op, bucket, device, near.found.value);
    if (usable.implementation == nullptr) continue;
    if (spec::broken_constraint(op, *usable.implementation, problem, device, usable.config)) continue;
    contenders.push_back({std::move(near), std::move(usable), 0});
  }
  if (contenders.empty()) return std::nullopt;
  auto chosen = contenders.begin();
  if (std::ranges::all_of(contenders, [](const Contender& each) {
        const spec::Implementation& implementation = *each.usable.implementation;
        return implementation.is_library() || tune::has_model(implementation);
      })) {
    for (Contender& each : contenders) each.expected_ns = expected_ns(op, each, bucket, device, regime);
    chosen = std::ranges::min_element(contenders, {}, &Contender::expected_ns);
  }
  return Nearest{std::move(chosen->near.found.value), std::move(chosen->usable), chosen->near.distance};
}

}  // namespace kiln::engine
