// One device, its context and a stream, with a file in memory, for a whole test.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/compile_pool.hpp"
#include "jit/executable.hpp"
#include "kiln/kiln.hpp"
#include "store/layers.hpp"
#include "tune/verification_case.hpp"

namespace kiln::gpu_tests {

/// Ops of this source tree; KILN_TEST_OPS names another place where the tree was moved.
inline std::vector<std::filesystem::path> test_ops() {
  const char* moved = std::getenv("KILN_TEST_OPS");
  const std::filesystem::path root = moved != nullptr ? moved : KILN_SOURCE_DIR;
  return {root / "tests/ops", root / "examples/ops"};
}

inline Options options(MissPolicy policy, const std::filesystem::path& overlay) {
  Options options;
  options.on_miss = policy;
  options.overlay = overlay;
  options.template_paths = test_ops();
  return options;
}

struct Fixture {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  cuda::Stream stream;
  store::Layers layers{store::LayerSettings{}};
  jit::CompilePool pool;
  answer::Cubins cubins{layers, pool};
  std::vector<manifest::Op> ops = manifest::load_ops(test_ops());

  [[nodiscard]] const manifest::DeviceFacts& facts() const { return context.info().facts; }
  [[nodiscard]] std::string arch() const { return jit::default_arch(facts().sm()); }
  [[nodiscard]] const manifest::Op& op(std::string_view name) const {
    for (const manifest::Op& each : ops)
      if (each.name == name) return each;
    FAIL("no op ", std::string(name));
    return ops.front();
  }
  [[nodiscard]] Problem problem(const manifest::Op& described,
                                std::initializer_list<manifest::Setting> settings) const {
    const std::vector<manifest::Setting> list(settings);
    return manifest::make_problem(described, list);
  }
  [[nodiscard]] jit::Executable load(const manifest::Op& described, const manifest::Implementation& implementation,
                                     const Problem& bucket, const manifest::Config& config) {
    const auto frame = manifest::Variant{&implementation, config}.frame({described, facts()}, bucket);
    return {described, implementation, frame,
            cubins.get(jit::specialise(described, implementation, frame, arch())).cubin};
  }
};

}  // namespace kiln::gpu_tests
