// Records that were tuned from other sources than the present ones.
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
  std::int64_t records = 0;   // that answer on this device in this regime
  std::int64_t unusable = 0;  // of those, what cannot serve: nothing says what sources would be theirs now
  std::vector<Bucket> stale;  // by op and key
};

/// Over the records that look-ups would find: the first usable layer's of each key, of these ops' present revisions.
Staleness find_stale(std::span<const manifest::Op> ops, const manifest::DeviceFacts& device, Regime regime,
                     store::Layers& layers);

/// What the present ops would still ask of a stored record, on whichever device.
enum class Standing : std::uint8_t {
  present,  // all its choices were tuned from the present sources
  stale,    // from others, or for a bucket, an implementation or a config that its op has no more
  unknown,  // its op is not among these, or its device class does not parse
};

Standing standing_of(std::span<const manifest::Op> ops, const store::Record& record);

/// The source digests (hex) of all machine code that launching and verifying the record's bucket asks for now: its configs', where they
/// are still legal, the defaults' and the reference's. Empty when the op has no such bucket any more.
std::vector<std::string> sources_asked_for(std::span<const manifest::Op> ops, const store::Record& record);

}  // namespace kiln::engine
