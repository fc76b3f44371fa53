// Compiles of `scale` in worker processes that a test can tell from all others.
#pragma once

#include "faults/engine/fixture.hpp"
#include "jit/compile_pool.hpp"
#include "processes.hpp"

namespace kiln::faults {

using test::processes_of;

/// kiln-worker by a path that no other process has.
class OwnWorker {
 public:
  OwnWorker() : path(folder_ / "kiln-worker") { fs::create_symlink(KILN_WORKER_PROGRAM, path); }

 private:
  TemporaryFolder folder_;

 public:
  fs::path path;
};

struct Compile {
  manifest::Digest key;
  jit::Specialisation specialisation;
  std::shared_future<jit::Cubin> in(jit::CompilePool& pool) const { return pool.submit(key, specialisation); }
};

inline Compile compile_of(jit::Specialisation specialisation) {
  const manifest::Digest key = jit::cubin_key(specialisation, jit::compiler_identity());
  return {key, std::move(specialisation)};
}
inline Compile compile_of(const manifest::Config& config) {
  return compile_of(specialisation_of(scale_op(), "tiled", config));
}

}  // namespace kiln::faults
