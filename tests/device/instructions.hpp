// Instructions that tests of the emulator itself use, as kernels have them.
#pragma once

#include "emulator/cuda.hpp"

namespace test {

inline unsigned shared_address(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

inline void mbarrier_init(unsigned barrier, unsigned arrivals) {
  EMULATED_PTX("mbarrier.init.shared::cta.b64 [%0], %1;", emulator::in(barrier), emulator::in(arrivals));
}
inline void fence_mbarrier_init() { EMULATED_PTX("fence.mbarrier_init.release.cluster;"); }
inline void mbarrier_arrive(unsigned barrier) {
  EMULATED_PTX("mbarrier.arrive.shared::cta.b64 _, [%0];", emulator::in(barrier));
}
inline void mbarrier_arrive_cluster(unsigned barrier, unsigned rank) {
  EMULATED_PTX(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}",
      emulator::in(barrier), emulator::in(rank));
}
inline void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  EMULATED_PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", emulator::in(barrier), emulator::in(bytes));
}
inline void st_async(unsigned to, float2 value, unsigned barrier) {
  EMULATED_PTX("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];", emulator::in(to),
               emulator::in(value.x), emulator::in(value.y), emulator::in(barrier));
}
inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  EMULATED_PTX(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}",
      emulator::in(barrier), emulator::in(parity));
}

inline void named_barrier_sync(unsigned number, unsigned threads) {
  EMULATED_PTX("bar.sync %0, %1;", emulator::in(number), emulator::in(threads));
}
inline void named_barrier_arrive(unsigned number, unsigned threads) {
  EMULATED_PTX("bar.arrive %0, %1;", emulator::in(number), emulator::in(threads));
}
inline void cluster_sync() {
  EMULATED_PTX("barrier.cluster.arrive.release.aligned;");
  EMULATED_PTX("barrier.cluster.wait.acquire.aligned;");
}
inline unsigned cluster_block_rank() {
  unsigned rank = 0;
  EMULATED_PTX("mov.u32 %0, %%cluster_ctarank;", emulator::out(rank));
  return rank;
}

inline void tma_load(unsigned to, const void* map, unsigned barrier, int x, int y) {
  EMULATED_PTX(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];",
      emulator::in(to), emulator::in(map), emulator::in(barrier), emulator::in(x), emulator::in(y));
}
inline void tma_load_multicast(unsigned to, const void* map, unsigned barrier, int x, int y, unsigned short blocks) {
  EMULATED_PTX(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;",
      emulator::in(to), emulator::in(map), emulator::in(barrier), emulator::in(x), emulator::in(y),
      emulator::in(blocks));
}
inline void fence_proxy_async() { EMULATED_PTX("fence.proxy.async.shared::cta;"); }
inline void tma_store(const void* map, unsigned from, int x, int y) {
  EMULATED_PTX("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];", emulator::in(map),
               emulator::in(from), emulator::in(x), emulator::in(y));
  EMULATED_PTX("cp.async.bulk.commit_group;");
}
inline void bulk_add(float* to, unsigned from, unsigned bytes) {
  EMULATED_PTX("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;", emulator::in(to),
               emulator::in(from), emulator::in(bytes));
  EMULATED_PTX("cp.async.bulk.commit_group;");
}
inline void tma_store_wait_read() { EMULATED_PTX("cp.async.bulk.wait_group.read 0;"); }
inline void tma_store_wait() { EMULATED_PTX("cp.async.bulk.wait_group 0;"); }

inline void wgmma_fence() { EMULATED_PTX("wgmma.fence.sync.aligned;"); }
inline void wgmma_commit() { EMULATED_PTX("wgmma.commit_group.sync.aligned;"); }
inline void wgmma_wait() { EMULATED_PTX("wgmma.wait_group.sync.aligned 0;"); }

}  // namespace test
