// What stands in for a record that is missing: near records' choices and the model's.
#pragma once

#include <vector>

#include "engine/resolver.hpp"

namespace kiln::engine {

/// In the order in which they are tried. The same bucket's record of the nearest device of this architecture serves first, with its intervals; then this device's record
/// of open axes a doubling shorter or longer, where one config serves all its lengths. Without one the
/// model chooses a config for each of several lengths of the bucket, and counts what serves near buckets for more than the rest. Where the model says nothing, the
/// nearest records serve: this device's own, then the same bucket of another architecture, then the others.
/// A library's choices stand in for their own bucket alone, of another device only where a context of `device` is current, so that the library could be asked;
/// what is launched early there, and may not be here, is launched as usual.
std::vector<Answer> near_answers(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                                 Regime regime, store::Layers& layers);

}  // namespace kiln::engine
