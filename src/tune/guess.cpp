#include "tune/guess.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tune/model.hpp"

namespace kiln::tune {
namespace {

// Estimates err by more than this from one config to the next, so that a smaller promise is none.
constexpr double worth_a_compile = 0.95;  // of the default's time

}  // namespace

bool has_model(const spec::Implementation& implementation) noexcept {
  return !implementation.is_library() &&
         std::ranges::all_of(implementation.passes, [](const spec::Pass& pass) { return pass.model.has_value(); });
}

Expected fastest_expected(const spec::Op& op, const Problem& bucket, const Problem& problem,
                          const spec::DeviceFacts& device, Regime regime) {
  Expected best{nullptr, {}, std::numeric_limits<double>::infinity()};
  for (const spec::Implementation& implementation : op.implementations) {
    if (!has_model(implementation) || spec::why_not_eligible(op, implementation, bucket, device)) continue;
    for (spec::Config& config : spec::searched_space(op, implementation, bucket, device)) {
      const double ns = estimate(op, implementation, bucket, device, config, regime).ns;
      if (ns >= best.ns || spec::broken_constraint(op, implementation, problem, device, config)) continue;
      best = {&implementation, std::move(config), ns};
    }
  }
  return best;
}

Usable guess_for(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime) {
  const Problem bucket = spec::bucket_of(op, problem);
  Expected best = fastest_expected(op, bucket, problem, device, regime);
  const auto none = [](std::string why) { return Usable{nullptr, {}, std::move(why)}; };
  if (best.implementation == nullptr) return none(fmt::format("no config of '{}' has an estimate", op.name));
  const Usable otherwise = default_for(op, problem, device);
  if (otherwise.implementation != nullptr && has_model(*otherwise.implementation) &&
      estimate(op, *otherwise.implementation, bucket, device, otherwise.config, regime).ns * worth_a_compile <= best.ns)
    return none("the default is expected to be as fast as any");
  return {best.implementation, std::move(best.config), {}};
}

}  // namespace kiln::tune
