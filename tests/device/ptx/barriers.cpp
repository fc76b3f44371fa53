// Instructions by which threads wait for each other.
#include "emulator/machine.hpp"
#include "ptx/call.hpp"
#include "ptx/instructions.hpp"

namespace emulator::instructions {
namespace {

struct AtBarrier : Wait {
  AtBarrier(const NamedBarrier& at, unsigned its_number) : barrier(at), round(at.rounds), number(its_number) {}
  [[nodiscard]] bool over() override { return barrier.rounds != round; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("barrier {}, to which {} of {} threads came", number, barrier.arrived,
                       barrier.expected == 0 ? "all" : std::to_string(barrier.expected));
  }
  const NamedBarrier& barrier;
  unsigned round, number;
};

NamedBarrier& arrive_at(const Call& call) {
  Block& block = current_block();
  if (call.get(0) >= block.barriers.size()) fault("barrier {} of {}", call.get(0), block.barriers.size());
  NamedBarrier& barrier = block.barriers[call.get(0)];
  barrier.arrive(call.size() > 1 ? call.word(1) : 0);
  return barrier;
}

struct AtCluster : Wait {
  AtCluster(const ClusterBarrier& at, unsigned since) : barrier(at), round(since) {}
  [[nodiscard]] bool over() override { return barrier.rounds != round; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("the cluster's barrier, to which {} threads came", barrier.arrived);
  }
  const ClusterBarrier& barrier;
  unsigned round;
};

/// Phases have parities: the wait for one is over when the current phase has the other.
struct AtMbarrier : Wait {
  AtMbarrier(const Mbarrier& at, unsigned its_address, unsigned of) : barrier(at), address(its_address), parity(of) {}
  [[nodiscard]] bool over() override { return barrier.phase % 2 != parity; }
  [[nodiscard]] std::string text() const override {
    return fmt::format(
        "parity {} of the mbarrier at {:#x}, in whose phase {} {} of {} arrivals and {} bytes are missing", parity,
        address, barrier.phase, barrier.pending, barrier.arrivals, barrier.bytes);
  }
  const Mbarrier& barrier;
  unsigned address, parity;
};

/// Of this block, or, where the opcode says so, of the cluster.
Mbarrier& mbarrier_of(const Call& call, std::size_t operand) {
  const unsigned address = call.word(operand);
  Block& block = current_cluster().block_at(address);
  const bool own = &block == &current_block();
  if (!own && !call.has("shared::cluster")) fault("{} at another block's mbarrier", call.instruction().opcode);
  Mbarrier& barrier = block.mbarrier_at(SharedMemory::offset_of(address));
  if (!own && !barrier.fenced)
    fault("an arrival at another block's mbarrier, which fence.mbarrier_init has not made known");
  return barrier;
}

}  // namespace

void bar_sync(Call& call) {
  NamedBarrier& barrier = arrive_at(call);
  AtBarrier wait(barrier, call.word(0));
  barrier.settle(current_block().live);
  await(std::move(wait));
}

void bar_arrive(Call& call) {
  if (call.size() < 2) fault("bar.arrive needs the number of threads that come");
  arrive_at(call).settle(current_block().live);
}

void barrier_cluster_arrive(Call&) {
  Thread& thread = current();
  Cluster& cluster = current_cluster();
  if (thread.arrived_at_cluster) fault("arrives at the cluster's barrier again, and has not waited");
  thread.arrived_at_cluster = true;
  thread.cluster_rounds = cluster.barrier.rounds;
  ++cluster.barrier.arrived;
  cluster.barrier.settle(cluster.live());
}

void barrier_cluster_wait(Call&) {
  Thread& thread = current();
  if (!thread.arrived_at_cluster) fault("waits at the cluster's barrier, and has not arrived");
  await(AtCluster(current_cluster().barrier, thread.cluster_rounds));
  thread.arrived_at_cluster = false;
}

void elect(Call& call) {
  meet_in_warp("elect.sync", call.word(1), call, [](const auto& lanes) {
    bool first = true;
    for (Call* lane : lanes) {
      if (lane == nullptr) continue;
      lane->set(first, 0, 1);
      first = false;
    }
  });
}

void mbarrier_init(Call& call) {
  const unsigned address = call.word(0), arrivals = call.word(1);
  if (arrivals == 0) fault("an mbarrier for no arrivals");
  static_cast<void>(own_shared(address, 8, 8));
  Thread& thread = current();
  thread.block->mbarriers[SharedMemory::offset_of(address)] = {arrivals, arrivals, 0, 0, false, thread.number};
}

void mbarrier_invalidate(Call& call) { current_block().mbarriers.erase(SharedMemory::offset_of(call.word(0))); }

void fence_mbarrier_init(Call&) {
  const Thread& thread = current();
  for (auto& [offset, barrier] : thread.block->mbarriers) barrier.fenced |= barrier.maker == thread.number;
}

void mbarrier_arrive(Call& call) {
  Mbarrier& barrier = mbarrier_of(call, 1);
  for (unsigned left = call.size() > 2 ? call.word(2) : 1; left > 0; --left) barrier.arrive();
}

void mbarrier_arrive_expect_tx(Call& call) {
  Mbarrier& barrier = mbarrier_of(call, 1);
  barrier.expect(call.word(2));
  barrier.arrive();
}

void mbarrier_expect_tx(Call& call) { mbarrier_of(call, 0).expect(call.word(1)); }

/// try_wait, which may give up at any time: here it never does, so that nobody turns in circles.
void mbarrier_wait(Call& call) {
  const unsigned address = call.word(1), parity = call.word(2);
  if (parity > 1) fault("an mbarrier's parity is 0 or 1, not {}", parity);
  await(AtMbarrier(mbarrier_of(call, 1), address, parity));
  call.set(1, 0);
}

}  // namespace emulator::instructions
