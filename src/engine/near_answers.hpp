// What stands in for a record that is missing: near records' choices and the model's.
#pragma once

#include <vector>

#include "engine/resolver.hpp"

namespace kiln::engine {

/// In the order in which they are tried. The same bucket of the nearest device comes before other buckets of that device. It meets
/// this device's own near buckets by expected time: recorded time times what the model makes of the way from there. Which of the
/// two is the better guess depends on how far the bucket is and how alike the devices are, and the model sees both. Another architecture's
/// records come behind this device's own, which the model does not compare well. A record that is more than two doublings away gives way to the
/// model's choice where that is expected to be much faster.
/// Of another device's record a library's choices stand in only where a context of `device` is current, so that the library could be asked; what is launched
/// early there, and may not be here, is launched as usual.
std::vector<Answer> near_answers(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                                 Regime regime, store::Layers& layers);

}  // namespace kiln::engine
