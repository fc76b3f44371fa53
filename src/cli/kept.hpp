// What a command that promised to keep something asks before it ends well.
#pragma once

#include <string>
#include <string_view>

#include "engine/tuner.hpp"
#include "kiln/engine.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

/// Buckets that were tuned and that the overlay's file does not hold.
std::int64_t lost_records(const TuneReport& report);
/// Of the device that keeps nothing, Layers::not_kept; empty when all is kept.
std::string not_kept(const engine::TunerState& tuner);
/// Throws Error(io), for exit status 4: that the overlay does not keep `what`, why, and what to do.
[[noreturn]] void refuse_unkept(std::string_view what, std::string_view why);
/// Throws so, before work of minutes has begun, unless `why_not` is empty.
void require_place(std::string_view what, std::string_view why_not);
/// Throws so unless the overlay's file holds all that was put into it.
void require_kept(const store::Layers& layers, std::string_view what);
/// Throws so when buckets were tuned that the overlay's file does not hold.
void require_kept(const engine::TunerState& tuner, const TuneReport& report);
/// The same of what the engine's launches tuned.
void require_tunes_kept(const Engine& engine);

}  // namespace kiln::cli
