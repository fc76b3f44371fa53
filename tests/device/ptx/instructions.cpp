#include "ptx/instructions.hpp"

#include "emulator/fault.hpp"

namespace emulator {
namespace {

namespace is = instructions;

void nothing(Call&) {}

struct Entry {
  std::string_view prefix;
  Instruction::Handler handler;
};

/// The first whose prefix fits. What changes the speed alone does nothing here, nor do fences between threads, since
/// writes are seen at once.
constexpr Entry table[] = {
    {"mov.", is::mov},
    {"setp.", is::setp},
    {"selp.", is::selp},
    {"cvt.", is::cvt},
    {"mul.rn.f32", is::mul},
    {"rcp.approx.", is::rcp},
    {"ex2.approx.", is::ex2},
    {"tanh.approx.f32", is::tanh},

    {"mapa.shared::cluster.u32", is::mapa},
    {"ld.shared", is::ld_shared},
    {"ld.acquire.gpu.global.u32", is::ld_acquire},
    {"st.release.gpu.global.u32", is::st_release},
    {"ld.acquire.sys.global.u64", is::ld_acquire_system},
    {"st.release.sys.global.u64", is::st_release_system},
    {"ld.relaxed.sys.global.v", is::ld_relaxed_system},
    {"st.relaxed.sys.global.", is::st_relaxed_system},
    {"red.relaxed.gpu.global.add.", is::red},
    {"st.async.", is::st_async},
    {"cp.reduce.async.bulk.global.", is::bulk_add},
    {"cp.async.bulk.global.shared::cta.bulk_group", is::bulk_store},
    {"cp.async.bulk.commit_group", is::bulk_commit},
    {"cp.async.bulk.wait_group", is::bulk_wait},
    {"cp.async.bulk.prefetch.", nothing},
    {"cp.async.bulk.shared::cluster.global.", is::bulk_load},
    {"cp.async.bulk.tensor.1d.global", is::tma_store},
    {"cp.async.bulk.tensor.2d.global", is::tma_store},
    {"cp.async.bulk.tensor.3d.global", is::tma_store},
    {"cp.async.bulk.tensor.", is::tma_load},
    {"cp.async.commit_group", is::cp_async_commit},
    {"cp.async.wait_", is::cp_async_wait},
    {"cp.async.c", is::cp_async},

    {"ldmatrix.", is::ldmatrix},
    {"stmatrix.", is::stmatrix},
    {"mma.sync.", is::mma},

    {"bar.sync", is::bar_sync},
    {"barrier.sync", is::bar_sync},
    {"bar.arrive", is::bar_arrive},
    {"barrier.arrive", is::bar_arrive},
    {"barrier.cluster.arrive", is::barrier_cluster_arrive},
    {"barrier.cluster.wait", is::barrier_cluster_wait},
    {"elect.sync", is::elect},
    {"mbarrier.init.", is::mbarrier_init},
    {"mbarrier.inval.", is::mbarrier_invalidate},
    {"fence.mbarrier_init.", is::fence_mbarrier_init},
    {"mbarrier.arrive.expect_tx.", is::mbarrier_arrive_expect_tx},
    {"mbarrier.arrive.", is::mbarrier_arrive},
    {"mbarrier.expect_tx.", is::mbarrier_expect_tx},
    {"mbarrier.try_wait.parity.", is::mbarrier_wait},

    {"wgmma.fence.", is::wgmma_fence},
    {"wgmma.mma_async.", is::wgmma},
    {"wgmma.commit_group.", is::wgmma_commit},
    {"wgmma.wait_group.", is::wgmma_wait},

    {"fence.proxy.async.global", is::fence_proxy_async_global},
    {"fence.proxy.async", is::fence_proxy_async},
    {"createpolicy.", is::createpolicy},
    {"prefetch.", nothing},
    {"fence.", nothing},
    {"griddepcontrol.", nothing},
    {"setmaxnreg.", nothing},
};

}  // namespace

Instruction::Handler handler_of(std::string_view opcode) {
  for (const Entry& entry : table) {
    if (opcode.starts_with(entry.prefix)) return entry.handler;
  }
  fault("the emulator does not know the instruction {}", opcode);
}

}  // namespace emulator
