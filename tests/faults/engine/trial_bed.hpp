// A bench of `scale` at tuned_bucket() in the workers of a program.
#pragma once

#include "faults/engine/fixture.hpp"
#include "tune/worker.hpp"

namespace kiln::faults {

struct TrialBed {
  explicit TrialBed(const fs::path& program, tune::WorkerTimeouts patience = {}) : worker(program, patience) {}
  std::unique_ptr<tune::Bench> bench() {
    auto made = worker.bench({.bucket = {{op, device.facts}, bucket}, .device = device, .arch = "sm_90a"}, cubins);
    made->set_sizes({bucket});
    return made;
  }
  tune::Admission admit(tune::Bench& bench, std::size_t candidate) const {
    return bench.admit(candidate, {variant, code, bucket});
  }

  manifest::Op op = scale_op();
  Problem bucket = tuned_bucket(op);
  cuda::DeviceInfo device = cuda::device_info(0);
  store::Layers layers{store::LayerSettings{}};
  jit::CompilePool pool{1};
  answer::Cubins cubins{layers, pool};
  tune::Worker worker;
  manifest::Variant variant{op.find("tiled"), {64, 1}};
  jit::Cubin code;
};

}  // namespace kiln::faults
