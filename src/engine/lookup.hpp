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
#include "tune/deploy.hpp"

namespace kiln::engine {

struct Lookup {
  Problem bucket;                                        // upper edges
  std::string key;                                       // spec::record_key
  std::optional<store::Found<store::Record>> record;     // the exact record, of the first layer whose one is usable
  std::string record_unusable;                           // why an exact record that was found cannot serve, or empty
  std::optional<Miss> miss;                              // why no exact record serves
  bool stale = false;                                    // tuned from other sources than the present ones
  Origin origin = Origin::default_;                      // overlay, base, nearest or default; never hot
  const spec::Implementation* implementation = nullptr;  // null only when not even a default is legal
  spec::Config config;
  double cost_ns = 0;  // as recorded for the bucket that it comes from; 0 for a default
  std::string why;     // one sentence
  [[nodiscard]] bool is_hit() const noexcept { return origin == Origin::overlay || origin == Origin::base; }
};

/// `stand_ins`: on a miss also look for the nearest record and the default. Throws nothing for a miss.
Lookup look_up(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
               store::Layers& layers, bool stand_ins = true);

using spec::parse_bucket;

/// The usable record of the op whose bucket lies nearest: equal selections, least sum over axes of |log2(size ratio)|, then the smaller
/// key. Its config must be legal at `bucket` on this device. Records of this device class are asked before any other's.
struct Nearest {
  store::Record record;
  tune::Usable usable;
};
std::optional<Nearest> nearest_record(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                                      Regime regime, store::Layers& layers);

/// The sources that a record's config would be built from now, as store::Record::source_digest has it.
std::string present_source(const spec::Op& op, const spec::Implementation& implementation, const Problem& bucket,
                           const spec::DeviceFacts& device, std::span<const std::int64_t> config);

}  // namespace kiln::engine
