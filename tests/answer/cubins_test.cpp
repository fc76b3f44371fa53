// Machine code that cannot be had is told to whoever needs it, not to whoever asks for it ahead.
#include "answer/cubins.hpp"

#include <doctest/doctest.h>

#include "cuda/nvrtc_api.hpp"
#include "kiln/error.hpp"

namespace kiln::answer {

TEST_CASE("asking ahead for a source that is refused throws nothing; asking for it says why") {
  if (cuda::Nvrtc::find() == nullptr) return;
  store::Layers layers{{}};
  jit::CompilePool pool(1);
  Cubins cubins(layers, pool);
  jit::Specialisation refused;
  refused.label = "evil";
  refused.entry = "evil.cuh";
  refused.files = std::vector<manifest::SourceFile>{{"evil.cuh", "#include \"/etc/passwd\"\n"}};
  refused.arch = "sm_90a";
  CHECK_NOTHROW(cubins.prefetch(refused));
  CHECK_NOTHROW(cubins.prefetch_serving(refused, "another compiler"));
  CHECK_THROWS_AS(static_cast<void>(cubins.get(refused)), Error);
  CHECK(cubins.compiled() == 0);
}

}  // namespace kiln::answer
