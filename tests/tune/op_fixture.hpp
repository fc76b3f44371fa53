// An op from a folder of the tests, with its first implementation loaded, on the fake driver.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fake_cuda/fixture.hpp"
#include "jit/compile_pool.hpp"
#include "store/layers.hpp"
#include "tune/verification_case.hpp"

namespace kiln::tune::testing {

struct OpFixture {
  /// `folder`: relative to the source tree.
  explicit OpFixture(const std::string& folder)
      : op(manifest::load_op(std::filesystem::path(KILN_SOURCE_DIR) / folder)),
        implementation(op.implementations.front()) {}
  ~OpFixture() { fake_cuda_tests::control("heal"); }
  OpFixture(const OpFixture&) = delete;
  OpFixture& operator=(const OpFixture&) = delete;

  [[nodiscard]] const manifest::DeviceFacts& facts() const { return context.info().facts; }
  [[nodiscard]] std::string arch() const { return jit::default_arch(facts().sm()); }
  [[nodiscard]] Problem problem(const std::vector<manifest::Setting>& settings) const {
    return manifest::make_problem(op, settings);
  }
  jit::Cubin cubin(const Problem& bucket, const manifest::Config& config) {
    const auto frame = manifest::Variant{&implementation, config}.frame({op, facts()}, bucket);
    return cubins.get(jit::specialise(op, implementation, frame, arch())).cubin;
  }
  jit::Executable load(const Problem& bucket, const manifest::Config& config) {
    const auto frame = manifest::Variant{&implementation, config}.frame({op, facts()}, bucket);
    return {op, implementation, frame, cubin(bucket, config)};
  }
  VerificationCase case_of(const Problem& problem, const Placement& placement = {}) {
    return {{op, facts()}, problem, arch(), cubins, 11, stream.handle(), placement};
  }

  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  cuda::Stream stream;
  store::Layers layers{store::LayerSettings{}};
  jit::CompilePool pool;
  answer::Cubins cubins{layers, pool};
  manifest::Op op;
  const manifest::Implementation& implementation;
};

}  // namespace kiln::tune::testing
