// How much slower than a tuned config an answer is expected to be.
#include <algorithm>
#include <cmath>

#include "engine/resolver.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"
#include "tune/slowdown.hpp"

namespace kiln::engine {
namespace {

// Where no candidates were kept to learn from: the median over gemm's records on an H100, each served without those of its n and k.
constexpr double usual_guess = 1.05;

/// The answer's estimate over that of the config which the model expects to be fastest there; nothing where the model cannot tell its
/// implementation's configs apart.
std::optional<double> modelled_slowdown(const manifest::Op& op, const Answer& answer,
                                        const manifest::DeviceFacts& device, Regime regime) {
  if (!tune::has_model(*answer.implementation)) return std::nullopt;
  const tune::Expected best = tune::fastest_expected(op, answer.at, answer.at, device, regime);
  const double ratio =
      tune::estimate(op, *answer.implementation, answer.at, device, answer.config, regime).ns / best.ns;
  return std::isfinite(ratio) ? std::optional(std::max(ratio, 1.0)) : std::nullopt;
}

}  // namespace

double expected_slowdown(const manifest::Op& op, const Answer& answer, const Problem& bucket,
                         const manifest::DeviceFacts& device, Regime regime, store::Layers& layers) {
  if (answer.is_hit()) return 1;
  const auto known = tune::known_near(layers, op, bucket, device, regime);
  const tune::Usable usable{answer.implementation, answer.config, {}};
  std::optional<double> expected;
  switch (answer.origin) {
    case Origin::nearest: expected = tune::transfer_slowdown(op, known, answer.distance); break;
    case Origin::model: return tune::guess_slowdown(op, known, regime).value_or(usual_guess);
    default: expected = tune::default_slowdown(op, known, usable); break;
  }
  if (!expected) expected = modelled_slowdown(op, answer, device, regime);
  return expected ? *expected : tune::slowdown_over_bound(op, usable, answer.at, device, regime);
}

}  // namespace kiln::engine
