#include "cli/bench/scratch_tunes.hpp"

#include <fmt/format.h>

#include <utility>

#include "cli/interrupt.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

namespace kiln::cli::bench {

spec::Op with_exact_axes(spec::Op op) {
  for (spec::Axis& each : op.axes) each.policy = {};
  return op;
}

ScratchTunes::ScratchTunes(engine::State& state, spec::Op op) : state_(state), op_(std::move(op)) {}

Contender ScratchTunes::contender(std::string_view implementation, std::string_view config) const {
  const spec::Implementation* found = op_.find(implementation);
  const auto parsed = found == nullptr ? std::nullopt : spec::parse_config(*found, config);
  if (!parsed)
    throw Error(ErrorKind::not_tuned,
                fmt::format("{} has no implementation and config '{} {}'", op_.name, implementation, config));
  return {found, *parsed};
}

const ScratchTune& ScratchTunes::at(const Problem& problem, std::int64_t lowest) {
  const std::string text = spec::to_string(op_, problem);
  if (const auto known = tuned_.find(text); known != tuned_.end()) return known->second;
  tune::TuneRequest request = state_.tune_request(op_, problem);
  request.stop_requested = Interrupt::requested;
  request.on_event = {};
  request.lowest = lowest;
  tune::TuneResult result = tune::tune_bucket(request, state_.cubins);
  const store::Record& record = result.record;
  ScratchTune tuned{contender(record.implementation, record.config), record.provenance, std::move(result.runner_up)};
  return tuned_.emplace(text, std::move(tuned)).first->second;
}

}  // namespace kiln::cli::bench
