// What a command compiles, verifies and times with itself. An engine beside it counts its own launches alone.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "answer/cubins.hpp"
#include "cli/session.hpp"
#include "cuda/device.hpp"
#include "process/child.hpp"
#include "tune/worker.hpp"

namespace kiln::cli {

struct Tools {
  /// Throws as cuda::Context and open_layers do.
  explicit Tools(const Globals& globals) : context(globals.device), layers(open_layers(globals)) {
    if (!program.empty() && context.info().mode != cuda::ComputeMode::exclusive)  // one process at a time
      worker = std::make_unique<tune::Worker>(program);
  }
  [[nodiscard]] const manifest::DeviceFacts& facts() const noexcept { return context.info().facts; }
  [[nodiscard]] std::string arch() const { return jit::default_arch(facts().sm()); }

  cuda::Context context;
  store::Layers layers;
  std::filesystem::path program = process::find_worker({});
  jit::CompilePool pool{jit::CompileSettings{.program = program}};
  answer::Cubins cubins{layers, pool};
  std::unique_ptr<tune::Worker> worker;  // runs candidates; null: this process does
};

}  // namespace kiln::cli
