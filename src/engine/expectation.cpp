// How much slower than a tuned config an answer is expected to be.
#include <algorithm>
#include <cmath>

#include "engine/resolver.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"
#include "tune/slowdown.hpp"

namespace kiln::engine {
namespace {

/// The answer's estimate over that of the config which the model expects to be fastest; nothing where the model cannot tell its
/// implementation's configs apart.
std::optional<double> modelled_slowdown(const spec::Op& op, const Answer& answer, const Problem& bucket,
                                        const spec::DeviceFacts& device, Regime regime) {
  if (!tune::has_model(*answer.implementation)) return std::nullopt;
  const tune::Usable best = tune::guess_for(op, bucket, device, regime);
  if (best.implementation == nullptr) return 1;
  const auto ns = [&](const spec::Implementation& implementation, const spec::Config& config) {
    return tune::estimate(op, implementation, bucket, device, config, regime).ns;
  };
  const double ratio = ns(*answer.implementation, answer.config) / ns(*best.implementation, best.config);
  return std::isfinite(ratio) ? std::optional(std::max(ratio, 1.0)) : std::nullopt;
}

}  // namespace

double expected_slowdown(const spec::Op& op, const Answer& answer, const Problem& bucket,
                         const spec::DeviceFacts& device, Regime regime, store::Layers& layers) {
  if (answer.is_hit()) return 1;
  const auto known = tune::known_near(layers, op, bucket, device, regime);
  const tune::Usable usable{answer.implementation, answer.config, {}};
  std::optional<double> expected;
  switch (answer.origin) {
    case Origin::nearest: expected = tune::transfer_slowdown(op, known, answer.distance); break;
    case Origin::model: expected = tune::guess_slowdown(op, known, regime); break;
    default: expected = tune::default_slowdown(op, known, usable); break;
  }
  // Of its own choice the model knows none better.
  if (!expected && answer.origin != Origin::model) expected = modelled_slowdown(op, answer, bucket, device, regime);
  return expected ? *expected : tune::slowdown_over_bound(op, usable, answer.at, device, regime);
}

}  // namespace kiln::engine
