#include "cli/cost.hpp"

namespace kiln::cli {

Rates rates_of(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, double ns) {
  if (!(ns > 0)) return {};
  const auto frame = spec::make_frame(op, nullptr, problem, device);
  const auto per_second = [&](const spec::Expression& amount) {
    const spec::Value value = amount.evaluate(frame);
    return value.ok() ? static_cast<double>(value.number) / (ns * 1e-9) : 0.0;
  };
  return {per_second(op.cost_bytes), per_second(op.cost_flops)};
}

}  // namespace kiln::cli
