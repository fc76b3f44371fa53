// Engine::explain, which resolves with fallbacks under any policy. Needs no device, and tunes, compiles, loads and
// launches nothing.
#pragma once

#include <string>

#include "answer/cubins.hpp"
#include "kiln/engine.hpp"
#include "manifest/site.hpp"
#include "store/layers.hpp"

namespace kiln::answer {

/// Of a problem with a size of 0: a launch does nothing.
Explanation explain_nothing(const manifest::Op& op, const Problem& problem);

/// What the files hold of a bucket that has no record: "overlay /x: no record of rms_norm; base /y: not opened: ...".
std::string text_of_files(const manifest::Bucket& bucket, const store::Layers& layers);

/// REQUIRES: no size is 0.
Explanation explain(const manifest::Site& site, const Problem& problem, const std::string& arch, store::Layers& layers,
                    Cubins& cubins);

}  // namespace kiln::answer
