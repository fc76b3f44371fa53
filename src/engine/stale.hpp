// Records whose sources have changed since their tune.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/resolver.hpp"

namespace kiln::engine {

struct Staleness {
  struct Bucket {
    const manifest::Op* op = nullptr;
    Problem bucket;
  };
  std::int64_t records = 0;  // of this device and regime
  std::int64_t unusable =
      0;  // of those, records without a config that can serve, which have no present sources to compare with
  std::vector<Bucket> stale;  // by op and key
};

/// Looks at the records that look-ups would find: the first usable layer's of each key, of these ops' present revisions.
Staleness find_stale(std::span<const manifest::Op> ops, const manifest::DeviceFacts& device, Regime regime,
                     store::Layers& layers);

/// Whether a stored record matches the present ops, on any device.
enum class Standing : std::uint8_t {
  present,  // all its choices were tuned from the present sources
  stale,    // a choice was tuned from other sources, or its bucket, implementation or config is no longer declared
  unknown,  // its op is not among these, or its device class does not parse
};

Standing standing_of(std::span<const manifest::Op> ops, const store::Record& record);

/// The source digests (hex) of all machine code that launching and verifying the record's bucket needs now: that of its legal configs, the
/// defaults and the reference. Empty where the op has no such bucket any more.
std::vector<std::string> sources_asked_for(std::span<const manifest::Op> ops, const store::Record& record);

}  // namespace kiln::engine
