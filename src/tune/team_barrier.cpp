#include "tune/team_barrier.hpp"

#include <array>

#include "cuda/device.hpp"
#include "tune/internal_kernels.hpp"

namespace kiln::tune {
namespace {

constexpr unsigned threads = 32;  // of the kernel's block

}  // namespace

TeamBarrier::TeamBarrier(const team::Member& team, const std::string& arch, Cubins& cubins)
    : arguments_("team_barrier", team.trial_binding(0), team.world(), {}, 0) {
  const jit::Cubin cubin = cubins.get_and_keep(team_barrier_kernel(arch)).cubin;
  module_ = std::make_unique<jit::Module>(cubin.image, cubin.lowered_names);
}

void TeamBarrier::enqueue(CUstream stream) const {
  std::array<void*, 1> parameters = {const_cast<team::TeamArgument*>(&arguments_.team())};
  cuda::check(cuda::Driver::get().cuLaunchKernel(module_->function(0), 1, 1, 1, threads, 1, 1, 0, stream,
                                                 parameters.data(), nullptr),
              "waiting for the other ranks");
}

}  // namespace kiln::tune
