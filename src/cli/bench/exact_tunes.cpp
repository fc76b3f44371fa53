#include "cli/bench/exact_tunes.hpp"

#include <fmt/format.h>

#include "cli/interrupt.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

namespace kiln::cli::bench {

ExactTunes::ExactTunes(engine::State& state, const spec::Op& op) : state_(state), exact_(op) {
  for (spec::Axis& each : exact_.axes) each.policy = {};
}

Contender ExactTunes::contender(std::string_view implementation, std::string_view config) const {
  const spec::Implementation* found = exact_.find(implementation);
  const auto parsed = found == nullptr ? std::nullopt : spec::parse_config(*found, config);
  if (!parsed)
    throw Error(ErrorKind::not_tuned,
                fmt::format("{} has no implementation and config '{} {}'", exact_.name, implementation, config));
  return {found, *parsed};
}

const ExactTune& ExactTunes::at(const Problem& problem) {
  const std::string text = spec::to_string(exact_, problem);
  if (const auto known = tuned_.find(text); known != tuned_.end()) return known->second;
  const auto& device = state_.context.info();
  const tune::TuneRequest request{.op = exact_,
                                  .bucket = problem,
                                  .key = spec::record_key(exact_, problem, device.facts, state_.options.regime),
                                  .device = device,
                                  .regime = state_.options.regime,
                                  .arch = state_.arch(),
                                  .search = state_.options.search,
                                  .worker = state_.worker.get(),
                                  .stop_requested = Interrupt::requested,
                                  .on_event = {}};
  const store::Record record = tune::tune_bucket(request, state_.cubins).record;
  ExactTune tuned{contender(record.implementation, record.config), record.provenance};
  return tuned_.emplace(text, std::move(tuned)).first->second;
}

}  // namespace kiln::cli::bench
