#include "gemm/restricted.hpp"

#include <algorithm>

#include "cli/bench/refinery.hpp"
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

RestrictedOp::RestrictedOp(const kiln::Options& options, std::string_view op, std::span<const std::string> left_out,
                           int splits)
    : state_(options),
      splits_(splits),
      is_restricted_(!left_out.empty()),
      op_(without(kiln::cli::find_op(state_.ops.all(), op), left_out)) {}

kiln::engine::Lookup RestrictedOp::look_up(const kiln::Problem& problem) {
  return kiln::engine::look_up(op_, problem, state_.context.info().facts, state_.options.regime, state_.layers, false);
}

void RestrictedOp::tune(const kiln::engine::Lookup& missed) {
  kiln::tune::TuneRequest request = state_.tune_request(op_, missed.bucket);
  request.lowest = kiln::cli::bench::top_part_from(op_, missed.bucket, splits_);
  kiln::tune::publish(request, kiln::tune::tune_bucket(request, state_.cubins), state_.cubins);
}

bool RestrictedOp::make_ready(const kiln::Problem& problem) {
  const kiln::engine::Lookup found = look_up(problem);
  if (!found.is_hit()) tune(found);
  // A length at its bucket's end is served by the bucket's own config, whatever the lower ones are served by.
  if (splits_ > 0 && !(problem == found.bucket)) {
    kiln::cli::bench::RefineChoice choice{.most_parts = splits_};
    if (is_restricted_) choice.lowest = problem.axes[kiln::spec::refined_axis(op_).value()];
    kiln::cli::bench::Refinery(state_, {&op_, found.bucket}, choice).run([](const std::string&) {});
  }
  return !found.is_hit();
}

RestrictedPlan RestrictedOp::plan(const kiln::Problem& problem) {
  const std::int64_t before = state_.pool.compiled();
  const bool tuned = make_ready(problem);
  const kiln::engine::Lookup found = kiln::engine::part_at(op_, look_up(problem), problem);
  const kiln::spec::Implementation& implementation = *found.implementation;
  const auto frame =
      kiln::spec::make_frame(op_, &implementation, found.bucket, state_.context.info().facts, found.config);
  const auto cubin = state_.cubins.get(kiln::jit::specialise(op_, implementation, frame, state_.arch())).cubin;
  kiln::jit::Executable executable(op_, implementation, frame, cubin);
  kiln::tune::TrialWorkspace workspace(executable);
  return {implementation.name,
          kiln::spec::to_string(implementation, found.config),
          tuned,
          state_.pool.compiled() - before,
          std::move(executable),
          std::move(workspace)};
}

}  // namespace bench
