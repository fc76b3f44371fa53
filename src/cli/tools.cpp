#include "cli/tools.hpp"

#include "process/child.hpp"

namespace kiln::cli {
namespace {

/// None where no other process may use the GPU beside this one.
std::unique_ptr<tune::Worker> worker_on(const cuda::DeviceInfo& device) {
  auto program = process::find_worker({});
  if (program.empty() || device.mode == cuda::ComputeMode::exclusive) return nullptr;
  return std::make_unique<tune::Worker>(std::move(program));
}

}  // namespace

Tools::Tools(const Globals& globals)
    : context(globals.device),
      layers(open_layers(globals)),
      pool({.program = process::find_worker({})}),
      cubins(layers, pool),
      worker(worker_on(context.info())) {}

std::string Tools::arch() const { return jit::default_arch(facts().sm()); }

}  // namespace kiln::cli
