// The buckets that have records, and the records whose sources have changed since their tune.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "answer/resolver.hpp"
#include "manifest/catalogue.hpp"

namespace kiln::answer {

/// Returns the buckets of an op that the layers have records of, for its present revision, device and regime, each
/// once.
std::vector<manifest::Bucket> recorded_buckets(const manifest::Site& site, store::Layers& layers);

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

/// Looks at the records that look-ups would find: the first usable layer's of each key, of these ops' present
/// revisions.
Staleness find_stale(std::span<const manifest::Op> ops, const manifest::DeviceFacts& device, Regime regime,
                     store::Layers& layers);

/// Whether a stored row matches the present ops, on any device.
enum class Freshness : std::uint8_t {
  present,
  stale,
  unknown,  // its op is not among these, or the row does not say enough
};

/// Stale: a choice was tuned from other sources, or its bucket, implementation or config is no longer declared.
Freshness freshness_of(const manifest::Catalogue& ops, const store::Record& record);

/// Whether some implementation of the cubin's op, or its reference, has the sources that the cubin was compiled from.
/// Unknown where the cubin does not say its sources.
Freshness freshness_of(const manifest::Catalogue& ops, const store::PackedCubin& cubin);

}  // namespace kiln::answer
