#include "engine/lookup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jit/executable.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"

namespace kiln::engine {
namespace {

void use(Lookup& lookup, tune::Usable usable, Origin origin, double cost_ns, std::string why) {
  lookup.implementation = usable.implementation;
  lookup.config = std::move(usable.config);
  lookup.origin = origin;
  lookup.cost_ns = cost_ns;
  lookup.why = std::move(why);
}

void judge(tune::RunnerUp& runner_up, const spec::Op& op, const spec::DeviceFacts& device) {
  runner_up.stale = is_stale(op, runner_up.usable, runner_up.at, device, runner_up.record);
}

void use_refinements(Lookup& lookup, const spec::Op& op, const spec::DeviceFacts& device,
                     std::span<const store::Record> beside) {
  if (!spec::refined_axis(op)) return;
  auto found = tune::refinements_of(op, lookup.bucket, device, lookup.key, beside);
  lookup.refinements = std::move(found.usable);
  lookup.unusable_refinements = found.unusable;
  for (tune::Refinement& each : lookup.refinements) {
    each.stale = is_stale(op, each.usable, each.at, device, each.record);
    if (each.runner_up) judge(*each.runner_up, op, device);
  }
}

/// A layer's record with what holds beside it.
struct Stored {
  tune::Usable usable;
  std::optional<tune::RunnerUp> runner_up;
  std::vector<store::Record> beside;
};

/// The record cannot serve and its runner-up does.
void use_runner_up(Lookup& lookup, Stored& stored) {
  lookup.passed_over = std::exchange(lookup.record->value, std::move(stored.runner_up->record));
  stored.usable = std::move(stored.runner_up->usable);
  stored.runner_up.reset();
}

/// `why_not`: why the winner cannot serve, or empty.
std::string why_runner_up_serves(std::string_view winner, double winner_ns, std::string_view why_not, bool stale) {
  return fmt::format(
      "the record's runner-up serves: {} won with {:.2f} us{}; this is the fastest of the same tune without a library{}",
      winner, winner_ns / 1000, why_not.empty() ? "" : fmt::format(" and cannot serve ({})", why_not),
      stale ? ", tuned from other sources, and serves until the bucket is tuned again" : "");
}

std::string why_record_serves(const Lookup& lookup) {
  if (lookup.passed_over)
    return why_runner_up_serves(lookup.passed_over->implementation, lookup.passed_over->cost_ns, lookup.record_unusable,
                                lookup.stale);
  return lookup.stale ? "the record was tuned from other sources; it serves until it is tuned again"
                      : "the record's config is legal in this bucket";
}

std::string why_part_serves(const tune::Refinement& lower) {
  if (lower.passed_over)
    return why_runner_up_serves(lower.passed_over->implementation, lower.passed_over->cost_ns, lower.why_passed_over,
                                lower.stale);
  return lower.stale ? "it was tuned from other sources and serves until the bucket is tuned again"
                     : "its config is legal there";
}

/// The first layer's record that can serve; one that cannot, nor its runner-up, does not hide those behind it.
bool use_record(Lookup& lookup, const spec::Op& op, const spec::DeviceFacts& device, store::Layers& layers) {
  store::Counters met;
  Stored stored;
  const auto can_serve = [&](const store::Found<store::Record>& found) {
    stored.usable = tune::usable(op, lookup.bucket, device, found.value);
    stored.beside = layers.records_under(found);
    stored.runner_up = tune::runner_up_of(op, lookup.bucket, device, lookup.key, stored.beside);
    const bool usable = stored.usable.implementation != nullptr;
    if (!usable && (stored.runner_up || lookup.record_unusable.empty())) lookup.record_unusable = stored.usable.why_not;
    if (usable) lookup.record_unusable.clear();
    return usable || stored.runner_up;
  };
  lookup.record = layers.find_record(lookup.key, can_serve, &met);
  if (!lookup.record) {
    lookup.miss = lookup.record_unusable.empty() ? reason_of(met, Miss::absent) : Miss::unusable;
    return false;
  }
  if (stored.usable.implementation == nullptr) use_runner_up(lookup, stored);
  const store::Record& record = lookup.record->value;
  lookup.stale = is_stale(op, stored.usable, lookup.bucket, device, record);
  if (stored.usable.implementation->is_library()) lookup.runner_up = std::move(stored.runner_up);
  if (lookup.runner_up) judge(*lookup.runner_up, op, device);
  const bool overlay = layers.layers()[lookup.record->layer].kind == store::LayerKind::overlay;
  use(lookup, std::move(stored.usable), overlay ? Origin::overlay : Origin::base, record.cost_ns,
      why_record_serves(lookup));
  use_refinements(lookup, op, device, stored.beside);
  return true;
}

// How many doublings away a record's config may be outdone by one that was never measured, and by how much the model must expect
// that. H200, gemm served by buckets three and more doublings away: a 95th percentile of 1.15 of the best time, 1.35 and
// more without; nearer, records do better than the model.
constexpr double far_away = 2;
constexpr double outdone_by = 1.25;

bool outdone(const spec::Op& op, const Nearest& nearest, const tune::Usable& guess, const Problem& bucket,
             const spec::DeviceFacts& device, Regime regime) {
  if (guess.implementation == nullptr || !tune::has_model(*nearest.usable.implementation)) return false;
  const auto ns = [&](const tune::Usable& config) {
    return tune::estimate(op, *config.implementation, bucket, device, config.config, regime).ns;
  };
  return ns(nearest.usable) > outdone_by * ns(guess);
}

void use_nearest(Lookup& lookup, Nearest nearest, const spec::DeviceFacts& device) {
  const store::Record& record = nearest.record;
  const std::string why =
      fmt::format("no usable record for this bucket; the nearest is {}{}, {:.1f} doublings away", record.bucket,
                  record.device_class == device.device_class() ? "" : " of " + record.device_class, nearest.distance);
  lookup.distance = nearest.distance;
  lookup.runner_up = std::move(nearest.runner_up);
  use(lookup, std::move(nearest.usable), Origin::nearest, record.cost_ns, why);
}

void stand_in(Lookup& lookup, const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device,
              Regime regime, store::Layers& layers) {
  auto nearest = nearest_record(op, problem, device, regime, layers);
  if (nearest && nearest->distance <= far_away) return use_nearest(lookup, std::move(*nearest), device);
  tune::Usable guess = tune::guess_for(op, problem, device, regime);
  if (nearest && !outdone(op, *nearest, guess, lookup.bucket, device, regime))
    return use_nearest(lookup, std::move(*nearest), device);
  if (guess.implementation != nullptr) {
    const std::string why = nearest ? fmt::format("the nearest record, {}, is {:.1f} doublings away",
                                                  nearest->record.bucket, nearest->distance)
                                    : "no record is near";
    return use(lookup, std::move(guess), Origin::model, 0,
               why + "; of what is legal the model expects this to be the fastest");
  }
  tune::Usable fallback = tune::default_for(op, lookup.bucket, device);
  const std::string why = fallback.implementation == nullptr
                              ? fallback.why_not
                              : fmt::format("no record is near and {}; the op's first legal default", guess.why_not);
  use(lookup, std::move(fallback), Origin::default_, 0, why);
}

}  // namespace

std::string present_source(const spec::Op& op, const spec::Implementation& implementation, const Problem& bucket,
                           const spec::DeviceFacts& device, std::span<const std::int64_t> config) {
  const auto frame = spec::make_frame(op, &implementation, bucket, device, config);
  return spec::to_hex(jit::source_digest(jit::specialise(op, implementation, frame, {})));
}

bool is_stale(const spec::Op& op, const tune::Usable& usable, const Problem& bucket, const spec::DeviceFacts& device,
              const store::Record& record) {
  const spec::Implementation& implementation = *usable.implementation;
  if (record.source_digest != present_source(op, implementation, bucket, device, usable.config)) return true;
  if (!implementation.is_library()) return false;
  const std::string identity = jit::library_identity(implementation.library);
  return !identity.empty() && identity != record.provenance.compiler;
}

bool Lookup::is_stale_in_part() const noexcept {
  const auto is_stale_behind = [](const auto& answer) { return answer.runner_up && answer.runner_up->stale; };
  return stale || is_stale_behind(*this) || std::any_of(refinements.begin(), refinements.end(), [&](const auto& each) {
           return each.stale || is_stale_behind(each);
         });
}

namespace {

/// What serves without a library above a part: of the parts above it, from the nearest on, then of the bucket, the first to have it.
std::optional<tune::RunnerUp> without_library_above(const Lookup& whole, std::int64_t edge) {
  for (const tune::Refinement& each : whole.refinements) {
    if (each.edge <= edge) continue;
    if (each.runner_up) return each.runner_up;
    if (!each.usable.implementation->is_library()) return tune::RunnerUp{each.at, each.record, each.usable, each.stale};
  }
  if (whole.implementation->is_library()) return whole.runner_up;
  return tune::RunnerUp{whole.bucket, whole.record->value, {whole.implementation, whole.config, {}}, whole.stale};
}

}  // namespace

Lookup lower_part(const Lookup& whole, const tune::Refinement& lower) {
  Lookup part;
  part.bucket = lower.at;
  part.key = lower.record.key;
  part.record = {lower.record, whole.record->layer};
  part.stale = lower.stale;
  part.passed_over = lower.passed_over;
  use(part, lower.usable, whole.origin, lower.record.cost_ns, why_part_serves(lower));
  if (lower.usable.implementation->is_library())
    part.runner_up = lower.runner_up ? lower.runner_up : without_library_above(whole, lower.edge);
  return part;
}

Lookup without_library(const Lookup& lookup, std::string_view why_not) {
  const tune::RunnerUp& runner_up = *lookup.runner_up;
  Lookup other;
  other.bucket = runner_up.at;
  other.key = runner_up.record.key;
  if (lookup.record) other.record = {runner_up.record, lookup.record->layer};
  other.miss = lookup.miss;
  other.stale = runner_up.stale;
  other.distance = lookup.distance;
  const bool is_its_own = !lookup.record || runner_up.record.key == spec::runner_up_key(lookup.record->value.key);
  const bool is_of_another = !is_its_own && spec::parse_runner_up_key(runner_up.record.key);
  use(other, runner_up.usable, lookup.origin, runner_up.record.cost_ns,
      is_its_own ? why_runner_up_serves(lookup.implementation->name, lookup.cost_ns, why_not, runner_up.stale)
                 : fmt::format("{} cannot serve, and the {} does", lookup.implementation->name,
                               is_of_another ? "runner-up of the record above its own"
                                             : "record above its own, which needs no library,"));
  return other;
}

Lookup part_at(const spec::Op& op, Lookup whole, const Problem& problem) {
  if (whole.refinements.empty()) return whole;
  const std::string& axis = op.axes[*spec::refined_axis(op)].name;
  std::string splits;
  for (const tune::Refinement& each : whole.refinements)
    splits += fmt::format("{}{}={}", splits.empty() ? "" : ", ", axis, each.edge);
  const tune::Refinement* lower = tune::covering(op, whole.refinements, problem);
  if (lower == nullptr) {
    whole.why = fmt::format("the bucket is split at {}; {}{}", splits,
                            whole.passed_over ? "above, " : "the bucket's own record serves above: ", whole.why);
    return whole;
  }
  Lookup part = lower_part(whole, *lower);
  part.why = fmt::format("the bucket is split at {}; {} its lower part, up to {}={}, {}{}", splits,
                         part.passed_over ? "in" : "the record of", axis, lower->edge,
                         part.passed_over ? "" : "serves: ", part.why);
  return part;
}

Lookup look_up(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
               store::Layers& layers, bool stand_ins) {
  Lookup lookup;
  lookup.bucket = spec::bucket_of(op, problem);
  lookup.key = spec::record_key(op, lookup.bucket, device, regime);
  if (use_record(lookup, op, device, layers)) return lookup;
  if (!stand_ins) return lookup;
  stand_in(lookup, op, problem, device, regime, layers);
  return lookup;
}

void make_servable(Lookup& lookup, const spec::Op& op, const spec::DeviceFacts& device, const std::string& arch,
                   tune::Cubins& cubins) {
  if (lookup.origin != Origin::nearest && lookup.origin != Origin::model) return;
  if (cubins.can_compile()) return;
  const auto frame = spec::make_frame(op, lookup.implementation, lookup.bucket, device, lookup.config);
  if (cubins.find(jit::specialise(op, *lookup.implementation, frame, arch))) return;
  tune::Usable fallback = tune::default_for(op, lookup.bucket, device);
  if (fallback.implementation == nullptr) return;
  const std::string why = fmt::format("no file has machine code of what would stand in ({}), and there is no NVRTC; {}",
                                      lookup.why, "the op's first legal default");
  use(lookup, std::move(fallback), Origin::default_, 0, why);
}

}  // namespace kiln::engine
