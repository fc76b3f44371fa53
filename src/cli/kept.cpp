#include "cli/kept.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {

std::string what_remains(std::string_view why_not) {
  if (why_not.empty()) return "the overlay keeps what was compiled, and the same command continues";
  return fmt::format("nothing is kept: {}; name a file with --overlay, so that the same command continues", why_not);
}

std::int64_t lost_records(const TuneReport& report) {
  return std::count_if(report.buckets.begin(), report.buckets.end(), [](const TunedBucket& each) {
    return each.outcome == TunedBucket::Outcome::tuned && !each.kept;
  });
}

void refuse_unkept(std::string_view what, std::string_view why) {
  throw Error(
      ErrorKind::io,
      fmt::format("the overlay does not keep {}: {}; fix that, or name another file with --overlay, and run this again",
                  what, why.empty() ? "another process has changed the overlay meanwhile" : why));
}

void require_place(std::string_view what, std::string_view why_not) {
  if (!why_not.empty()) refuse_unkept(fmt::format("{}, so nothing was begun", what), why_not);
}

void require_kept(store::Layers& layers, std::string_view what) {
  if (const std::string why = layers.not_kept(); !why.empty()) refuse_unkept(what, why);
}

void require_kept(const Tuner& tuner, const TuneReport& report) {
  const auto tuned = std::count_if(report.buckets.begin(), report.buckets.end(),
                                   [](const TunedBucket& each) { return each.outcome == TunedBucket::Outcome::tuned; });
  if (const auto lost = lost_records(report); lost > 0)
    refuse_unkept(fmt::format("{} of {}", lost, counted(tuned, "tuned record")), tuner.not_kept());
}

void require_tunes_kept(const Globals& globals, const Engine& engine) {
  const std::int64_t tunes = engine.stats().tunes;
  if (tunes == 0 || wants_no_overlay(globals)) return;
  if (const std::string why = Tuner(engine).not_kept(); !why.empty())
    refuse_unkept(counted(tunes, "tuned bucket"), why);
}

}  // namespace kiln::cli
