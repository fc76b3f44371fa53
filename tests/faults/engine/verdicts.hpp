// What a tune said of its candidates.
#pragma once

#include "faults/engine/fixture.hpp"

namespace kiln::faults {

struct Verdicts {
  std::string winner;
  std::int64_t good = 0;
  std::vector<std::string> rejected;  // "config verdict: reason"

  void operator()(const TuneEvent& event) {
    if (event.kind == TuneEvent::Kind::finished) winner = event.config;
    if (event.kind != TuneEvent::Kind::candidate) return;
    if (event.verdict == "ok")
      ++good;
    else
      rejected.push_back(fmt_verdict(event));
  }

 private:
  static std::string fmt_verdict(const TuneEvent& event) {
    return std::string(event.config) + " " + std::string(event.verdict) + ": " + std::string(event.reason);
  }
};

inline Options watched(Options options, Verdicts& verdicts) {
  options.on_tune = [&verdicts](const TuneEvent& event) { verdicts(event); };
  return options;
}

}  // namespace kiln::faults
