#include "gemm/restricted.hpp"

#include <algorithm>

#include "cli/ops_found.hpp"
#include "tune/tuner.hpp"

namespace bench {
namespace {

kiln::spec::Op without(kiln::spec::Op op, std::span<const std::string> left_out) {
  std::erase_if(op.implementations, [&](const kiln::spec::Implementation& each) {
    return std::find(left_out.begin(), left_out.end(), each.name) != left_out.end();
  });
  return op;
}

}  // namespace

RestrictedOp::RestrictedOp(const kiln::Options& options, std::string_view op, std::span<const std::string> left_out)
    : state_(options), op_(without(kiln::cli::find_op(state_.ops.all(), op), left_out)) {}

kiln::engine::Lookup RestrictedOp::look_up_or_tune(const kiln::Problem& problem) {
  const auto& device = state_.context.info();
  const kiln::Regime regime = state_.options.regime;
  kiln::engine::Lookup found = kiln::engine::look_up(op_, problem, device.facts, regime, state_.layers, false);
  if (found.is_hit()) return kiln::engine::part_at(op_, std::move(found), problem);
  const kiln::tune::TuneRequest request{.op = op_,
                                        .bucket = found.bucket,
                                        .key = found.key,
                                        .device = device,
                                        .regime = regime,
                                        .arch = state_.arch(),
                                        .search = state_.options.search,
                                        .worker = state_.worker.get(),
                                        .stop_requested = {},
                                        .on_event = {}};
  kiln::tune::publish(request, kiln::tune::tune_bucket(request, state_.cubins), state_.cubins);
  return kiln::engine::look_up(op_, problem, device.facts, regime, state_.layers, false);
}

RestrictedPlan RestrictedOp::plan(const kiln::Problem& problem) {
  const kiln::engine::Lookup found = look_up_or_tune(problem);
  const kiln::spec::Implementation& implementation = *found.implementation;
  const auto frame =
      kiln::spec::make_frame(op_, &implementation, found.bucket, state_.context.info().facts, found.config);
  const auto cubin = state_.cubins.get(kiln::jit::specialise(op_, implementation, frame, state_.arch())).cubin;
  kiln::jit::Executable executable(op_, implementation, frame, cubin);
  kiln::tune::TrialWorkspace workspace(executable);
  return {implementation.name, kiln::spec::to_string(implementation, found.config), std::move(executable),
          std::move(workspace)};
}

}  // namespace bench
