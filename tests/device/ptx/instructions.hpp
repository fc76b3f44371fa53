// The instructions that the emulator knows, by family; what each does is said by the PTX manual.
#pragma once

#include <string_view>

#include "ptx/program.hpp"

namespace emulator {

/// Throws Fault for an instruction that is not known.
Instruction::Handler handler_of(std::string_view opcode);

namespace instructions {

// arithmetic.cpp
void mov(Call&);
void setp(Call&);
void selp(Call&);
void cvt(Call&);
void mul(Call&);
void rcp(Call&);
void ex2(Call&);
void tanh(Call&);
// accesses.cpp
void mapa(Call&);
void ld_shared(Call&);
void ld_acquire(Call&);
void st_release(Call&);
void ld_acquire_system(Call&);
void st_release_system(Call&);
void ld_relaxed_system(Call&);
void st_relaxed_system(Call&);
void red(Call&);
void st_async(Call&);
void cp_async(Call&);
void cp_async_commit(Call&);
void cp_async_wait(Call&);
// matrices.cpp
void ldmatrix(Call&);
void stmatrix(Call&);
void mma(Call&);
// barriers.cpp
void bar_sync(Call&);
void bar_arrive(Call&);
void barrier_cluster_arrive(Call&);
void barrier_cluster_wait(Call&);
void elect(Call&);
void mbarrier_init(Call&);
void mbarrier_invalidate(Call&);
void fence_mbarrier_init(Call&);
void mbarrier_arrive(Call&);
void mbarrier_arrive_expect_tx(Call&);
void mbarrier_expect_tx(Call&);
void mbarrier_wait(Call&);
// bulk_copies.cpp
void bulk_load(Call&);
void bulk_add(Call&);
void bulk_store(Call&);
void tma_load(Call&);
void tma_store(Call&);
void bulk_commit(Call&);
void bulk_wait(Call&);
void fence_proxy_async(Call&);
void fence_proxy_async_global(Call&);
void createpolicy(Call&);
// products.cpp
void wgmma_fence(Call&);
void wgmma(Call&);
void wgmma_commit(Call&);
void wgmma_wait(Call&);

}  // namespace instructions
}  // namespace emulator
