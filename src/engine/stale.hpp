// Records that were tuned from other sources than the present ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/lookup.hpp"

namespace kiln::engine {

struct Staleness {
  struct Bucket {
    const spec::Op* op = nullptr;
    Problem bucket;
  };
  std::int64_t records = 0;   // that answer on this device in this regime
  std::int64_t unusable = 0;  // of those, what cannot serve: nothing says what sources would be theirs now
  std::vector<Bucket> stale;  // by op and key
};

/// Over the records that look-ups would find: the first usable layer's of each key, of these ops' present revisions.
Staleness find_stale(std::span<const spec::Op> ops, const spec::DeviceFacts& device, Regime regime,
                     store::Layers& layers);

}  // namespace kiln::engine
