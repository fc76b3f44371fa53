// Configs of one problem against each other: compiled, verified on fresh data, then timed in turns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/state.hpp"
#include "tune/bench.hpp"

namespace kiln::cli::bench {

struct Contender {
  const manifest::Implementation* implementation = nullptr;
  manifest::Config config;
  [[nodiscard]] std::string name() const;  // "tiled threads=64 vector=1"
  bool operator==(const Contender&) const = default;
};

struct Timed {
  store::Verdict verdict = store::Verdict::not_timed;
  std::string reason;              // for every verdict but ok
  std::vector<double> samples_ns;  // by round: those of one round were taken side by side
  tune::Cost cost;                 // failed() unless the verdict is ok
  [[nodiscard]] bool ok() const noexcept { return verdict == store::Verdict::ok; }
};

/// One for each contender, in a worker process if the engine has one. `problem` takes the place of a bucket's upper edges. The context
/// must be current. Throws as tune::Bench and Cubins do, except what one contender alone is to blame for.
std::vector<Timed> contest(engine::State& state, const manifest::Op& op, const Problem& problem, Regime regime,
                           std::span<const Contender> contenders);

}  // namespace kiln::cli::bench
