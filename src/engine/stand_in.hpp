// A bucket whose machine code is missing, while a near bucket's is loaded: that one's config serves at once, and the
// bucket's own answers take its place when they are compiled (engine/ahead.hpp).
#pragma once

#include <memory>

#include "answer/resolver.hpp"
#include "plan/op_state.hpp"

namespace kiln::engine {

/// Loads the answers where files have all of their machine code. Otherwise returns plans that begin with the config of
/// the nearest bucket whose machine code is loaded, legal at both ends of this bucket. Returns null where there is none
/// within three doublings: then the launch waits for a compile.
std::unique_ptr<plan::BucketPlans> stored_or_stand_in(plan::OpState& op_state, const answer::Resolution& resolution);

}  // namespace kiln::engine
