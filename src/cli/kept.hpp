// Checks that the overlay keeps a command's results.
#pragma once

#include <string>
#include <string_view>

#include "cli/session.hpp"
#include "kiln/tuner.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

/// Returns what an interrupted command says of its results, which an overlay does not keep for the reason `why_not`.
std::string what_remains(std::string_view why_not);
/// Returns the number of tuned buckets that the overlay's file does not hold.
std::int64_t lost_records(const TuneReport& report);
/// Throws Error(io) (exit status 4): the overlay does not keep `what`, the reason, and what to do.
[[noreturn]] void refuse_unkept(std::string_view what, std::string_view why);
/// Throws so unless `why_not` is empty. For use before work that takes minutes.
void require_place(std::string_view what, std::string_view why_not);
/// Throws so unless the overlay's file holds all that was put into it.
void require_kept(store::Layers& layers, std::string_view what);
/// Throws so unless the overlay's file holds every tuned bucket of the report.
void require_kept(const Tuner& tuner, const TuneReport& report);
/// Throws so unless it holds every bucket that the engine's launches tuned, or is in memory because its path is empty.
void require_tunes_kept(const Globals& globals, const Engine& engine);

}  // namespace kiln::cli
