#include "tune/team_barrier.hpp"

#include <array>

#include "kiln/error.hpp"
#include "tune/internal_kernels.hpp"

namespace kiln::tune {
namespace {

constexpr unsigned threads = 32;  // of the kernel's block

void sum(const team::NcclCommunicator& nccl, const cuda::Buffer& exchanged, CUstream stream) {
  auto* const value = reinterpret_cast<void*>(exchanged.pointer());
  const ncclResult_t result = nccl.enqueue([&](const cuda::Nccl& functions, ncclComm_t handle) {
    return functions.ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, handle, stream);
  });
  if (result != ncclSuccess)
    throw Error(ErrorKind::driver_failed, "waiting for the other ranks: NCCL's all-reduce was refused");
}

}  // namespace

TeamBarrier::TeamBarrier(const team::Member& team, const std::string& arch, answer::Cubins& cubins)
    : arguments_("team_barrier", team.trial_binding(0), team.world(), {}, 0) {
  if (team.link() == manifest::TeamLink::network) {
    nccl_ = team.nccl();
    exchanged_.emplace(static_cast<std::int64_t>(sizeof(float)));
    return;
  }
  const jit::Cubin cubin = cubins.get_and_keep(team_barrier_kernel(arch)).cubin;
  module_ = std::make_unique<jit::Module>(cubin.image, cubin.lowered_names);
}

void TeamBarrier::enqueue(CUstream stream) const {
  if (nccl_ != nullptr) return sum(*nccl_, *exchanged_, stream);
  std::array<void*, 1> parameters = {const_cast<team::TeamArgument*>(&arguments_.team())};
  cuda::check(cuda::Driver::get().cuLaunchKernel(module_->function(0), 1, 1, 1, threads, 1, 1, 0, stream,
                                                 parameters.data(), nullptr),
              "waiting for the other ranks");
}

}  // namespace kiln::tune
