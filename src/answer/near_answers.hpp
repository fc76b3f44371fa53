// The fallbacks of a bucket without a record: near records' configs, and the model's.
#pragma once

#include <vector>

#include "answer/resolver.hpp"

namespace kiln::answer {

/// The answers, in the order in which they are tried, from the first of these sources that has one:
/// 1. the same bucket's record of the nearest device of this architecture, with its intervals;
/// 2. this device's record at most a doubling away on the open axes, where one config serves all its lengths;
/// 3. the model, which chooses a config for each of several lengths of the bucket and favours configs that serve near
///    buckets;
/// 4. the nearest records: this device's, then the same bucket's of another architecture, then others. They precede the
///    model where the first one's implementation has no model, and follow it where the model proposes nothing.
///
/// A library's config serves its own bucket alone. On another device it serves only where a context of `device` is
/// current, so that the library can be asked. A config that launches early on its device, and may not on this one, is
/// launched without.
std::vector<Answer> near_answers(const manifest::Bucket& bucket, store::Layers& layers);

}  // namespace kiln::answer
