// The answer for a problem, before anything is loaded: which record, from where, or which stand-in. Needs no device.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/counters.hpp"
#include "kiln/engine.hpp"
#include "spec/key.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"
#include "tune/deploy.hpp"
#include "tune/refinement.hpp"

namespace kiln::engine {

struct Lookup {
  Problem bucket;                                        // upper edges
  std::string key;                                       // spec::record_key
  std::optional<store::Found<store::Record>> record;     // the exact record, of the first layer whose one is usable
  std::string record_unusable;                           // why an exact record that was found cannot serve, or empty
  std::optional<store::Record> passed_over;              // that record, where its runner-up is `record` and serves
  std::optional<tune::RunnerUp> runner_up;               // where a library serves: what does where the library cannot
  std::optional<Miss> miss;                              // why no exact record serves
  bool stale = false;                                    // tuned from other sources than the present ones
  Origin origin = Origin::default_;                      // overlay, base, nearest, model or default; never hot
  const spec::Implementation* implementation = nullptr;  // null only when not even a default is legal
  spec::Config config;
  double cost_ns = 0;   // as recorded for the bucket that it comes from; 0 for a default and for the model's choice
  double distance = 0;  // of a nearest record: tune::NearRecord::distance
  std::string why;      // one sentence
  std::vector<tune::Refinement> refinements;  // of the record, by edge: what serves the bucket's lower parts
  std::int64_t unusable_refinements = 0;
  /// Whether the record, one that refines it, or a runner-up was tuned from other sources.
  [[nodiscard]] bool is_stale_in_part() const noexcept;
  [[nodiscard]] bool is_hit() const noexcept { return origin == Origin::overlay || origin == Origin::base; }
};

/// `stand_ins`: on a miss also look for a near record, then ask the model, then take the default. A record more than two doublings
/// away gives way to the model's choice where that is expected to be much faster. Throws nothing for a miss.
Lookup look_up(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
               store::Layers& layers, bool stand_ins = true);

/// The answer for one part of a bucket that is split: as of a bucket of its own, with the edge's sizes as `bucket`. Where a library won
/// it and no runner-up of its own is there, what serves above it is its runner-up.
Lookup lower_part(const Lookup& whole, const tune::Refinement& lower);
/// The answer where the library of `lookup`, which has a runner-up, cannot serve; `why_not` is for its `why`.
Lookup without_library(const Lookup& lookup, std::string_view why_not = {});
/// The answer for the part that `problem`, of this bucket, lies in. Where the bucket is split, `why` says at which sizes.
Lookup part_at(const spec::Op& op, Lookup whole, const Problem& problem);

using spec::parse_bucket;

/// The near record that serves `problem`: one whose config is legal there and at the edge of its bucket, of this device class if
/// there is one, then of any, or its runner-up where that alone is legal; of those within one doubling of the least distance (tune::near_records) the one whose config
/// is expected to be fastest here: its recorded time times what the model makes of the way from there. Where
/// implementations have no model, the least distant, then the smaller key.
struct Nearest {
  store::Record record;
  tune::Usable usable;
  double distance = 0;
  std::optional<tune::RunnerUp> runner_up;  // of a record that a library computes
};
std::optional<Nearest> nearest_record(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device,
                                      Regime regime, store::Layers& layers);

/// Turns a stand-in whose machine code no file holds and no NVRTC can make into the default, which deployments carry.
void make_servable(Lookup& lookup, const spec::Op& op, const spec::DeviceFacts& device, const std::string& arch,
                   tune::Cubins& cubins);

/// Whether a record was tuned from other sources than its config would be built from now, or by another version of the library that
/// computes it.
bool is_stale(const spec::Op& op, const tune::Usable& usable, const Problem& bucket, const spec::DeviceFacts& device,
              const store::Record& record);

/// The sources that a record's config would be built from now, as store::Record::source_digest has it.
std::string present_source(const spec::Op& op, const spec::Implementation& implementation, const Problem& bucket,
                           const spec::DeviceFacts& device, std::span<const std::int64_t> config);

}  // namespace kiln::engine
