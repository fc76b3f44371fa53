// What a command compiles, verifies and times with itself. An engine beside it counts its own launches alone.
#pragma once

#include <memory>
#include <string>

#include "answer/cubins.hpp"
#include "cli/session.hpp"
#include "cuda/device.hpp"
#include "jit/compile_pool.hpp"
#include "store/layers.hpp"
#include "tune/worker.hpp"

namespace kiln::cli {

struct Tools {
  /// Throws as cuda::Context and open_layers do.
  explicit Tools(const Globals& globals);
  [[nodiscard]] const manifest::DeviceFacts& facts() const noexcept { return context.info().facts; }
  /// jit::default_arch of the device.
  [[nodiscard]] std::string arch() const;

  cuda::Context context;
  store::Layers layers;
  jit::CompilePool pool;
  answer::Cubins cubins;
  std::unique_ptr<tune::Worker> worker;  // runs candidates; null: this process does
};

}  // namespace kiln::cli
