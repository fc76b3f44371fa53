// A bench of `scale` at tuned_bucket() in the workers of a program.
#pragma once

#include "faults/engine/fixture.hpp"
#include "tune/worker.hpp"

namespace kiln::faults {

struct TrialBed {
  explicit TrialBed(const fs::path& program, tune::WorkerTimeouts patience = {}) : worker(program, patience) {}
  std::unique_ptr<tune::Bench> bench() {
    auto made = worker.bench({.op = op, .bucket = bucket, .device = device, .arch = "sm_90a"}, cubins);
    made->set_sizes({bucket});
    return made;
  }
  tune::Admission admit(tune::Bench& bench, std::size_t candidate) const {
    return bench.admit(candidate, {*op.find("tiled"), config, code, bucket});
  }

  manifest::Op op = scale_op();
  Problem bucket = tuned_bucket(op);
  cuda::DeviceInfo device = cuda::device_info(0);
  store::Layers layers{store::LayerSettings{}};
  jit::CompilePool pool{1};
  answer::Cubins cubins{layers, pool};
  tune::Worker worker;
  manifest::Config config{64, 1};
  jit::Cubin code;
};

}  // namespace kiln::faults
