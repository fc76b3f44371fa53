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
  std::optional<tune::RunnerUp> runner_up;
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

/// The record as it serves the problem, or its runner-up where that alone is legal; nothing when neither is.
std::optional<Contender> contender_of(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device,
                                      tune::NearRecord near, store::Layers& layers) {
  const auto is_legal = [&](const tune::Usable& usable) {
    return usable.implementation != nullptr &&
           !spec::broken_constraint(op, *usable.implementation, problem, device, usable.config);
  };
  const Problem bucket = spec::bucket_of(op, problem);
  Contender contender{std::move(near), {}, {}, 0};
  store::Record& record = contender.near.found.value;
  contender.usable = tune::usable(op, bucket, device, record);
  const bool usable = is_legal(contender.usable);
  if (usable && !contender.usable.implementation->is_library()) return contender;
  contender.runner_up = tune::runner_up_of(op, bucket, device, record.key, layers.records_under(contender.near.found));
  if (usable) return contender;
  if (!contender.runner_up || !is_legal(contender.runner_up->usable)) return std::nullopt;
  record = std::move(contender.runner_up->record);
  contender.usable = std::move(contender.runner_up->usable);
  contender.runner_up.reset();
  return contender;
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
    if (auto contender = contender_of(op, problem, device, std::move(near), layers))
      contenders.push_back(std::move(*contender));
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
  return Nearest{std::move(chosen->near.found.value), std::move(chosen->usable), chosen->near.distance,
                 std::move(chosen->runner_up)};
}

}  // namespace kiln::engine
