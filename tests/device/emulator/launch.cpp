#include "emulator/launch.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "emulator/cuda.hpp"
#include "emulator/machine.hpp"
#include "emulator/report.hpp"

namespace emulator {
namespace {

constexpr std::size_t stack_bytes = 256 << 10;

Thread* running = nullptr;

uint3 index_in(dim3 extent, unsigned number) {
  return {number % extent.x, number / extent.x % extent.y, number / (extent.x * extent.y)};
}

/// Which thread is next, and when what is in flight happens.
struct Order {
  explicit Order(std::uint32_t seed) : random(seed), in_turn(seed == 0) {
    constexpr unsigned soon_or_late[] = {1, 8, 64};
    if (!in_turn) in_flight_one_in = soon_or_late[seed % 3];
  }

  std::minstd_rand random;
  bool in_turn;
  unsigned in_flight_one_in = 0;  // steps of the schedule; 0: only where nothing else is left to do
  unsigned favourite = 0;         // thread that goes first, and those that follow it, as far as they get

  bool chance(unsigned one_in) { return one_in != 0 && random() % one_in == 0; }
};

class Schedule {
 public:
  Schedule(const Launch& launch, const std::function<void()>& kernel, Order& order, std::byte* stacks,
           unsigned first_cluster)
      : kernel_(kernel), order_(order) {
    const dim3 clusters{launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                        launch.grid.z / launch.cluster.z};
    const uint3 at = index_in(clusters, first_cluster);
    for (unsigned rank = 0; rank < launch.cluster.count(); ++rank) {
      const uint3 within = index_in(launch.cluster, rank);
      const uint3 index{at.x * launch.cluster.x + within.x, at.y * launch.cluster.y + within.y,
                        at.z * launch.cluster.z + within.z};
      cluster_.blocks.emplace_back(cluster_, rank, index, launch.block.count(), launch.shared_bytes);
    }
    for (Block& block : cluster_.blocks) {
      for (Thread& thread : block.threads) {
        thread.index = index_in(launch.block, thread.number);
        thread.fiber.start({stacks + threads_.size() * stack_bytes, stack_bytes}, [this, &thread] { body(thread); });
        threads_.push_back(&thread);
      }
    }
  }

  Account run() {
    while (cluster_.live() > 0) {
      if (order_.chance(order_.in_flight_one_in)) cluster_.in_flight.run_one(order_.random);
      if (Thread* next = ready()) {
        resume(*next);
      } else if (!cluster_.in_flight.run_one(order_.random)) {
        fault("deadlock: {}", who_waits(cluster_));
      }
    }
    while (cluster_.in_flight.run_one(order_.random)) {
    }
    return {cluster_.most_rows_outside};
  }

 private:
  void body(Thread& thread) {
    try {
      kernel_();
      leave(thread);
    } catch (const std::exception& error) {
      fault_ = Fault(fmt::format("{}, thread {}: {}", name_of(*thread.block), thread.number, error.what()));
    }
  }

  static void check_copies_done(const Block& block) {
    if (block.loads_in_flight > 0) fault("the block ends while loads into its shared memory are under way");
    for (const auto& [offset, barrier] : block.mbarriers) {
      if (barrier.bytes != 0)
        fault("the block ends while its mbarrier at {:#x} counts {} bytes as yet to come", offset, barrier.bytes);
    }
  }

  /// Others may have waited for this thread to come, or to end.
  static void leave(Thread& thread) {
    Block& block = *thread.block;
    if (thread.store_reads.under_way()) fault("ends while a bulk store of its own has yet to read shared memory");
    const auto products = block.warpgroups.find(thread.number / 128);
    if (products != block.warpgroups.end() && products->second.under_way())
      fault("ends while products of its warpgroup are under way");
    if (--block.live == 0) check_copies_done(block);
    for (NamedBarrier& barrier : block.barriers) barrier.settle(block.live);
    block.cluster.barrier.settle(block.cluster.live());
  }

  void resume(Thread& thread) {
    running = &thread;
    threadIdx = thread.index;
    blockIdx = thread.block->index;
    thread.fiber.resume();
    running = nullptr;
    if (fault_) throw Fault(*fault_);
  }

  Thread* ready() {
    if (order_.in_turn) {
      ++order_.favourite;
    } else if (order_.chance(64)) {
      order_.favourite = static_cast<unsigned>(order_.random());
    }
    const std::size_t count = threads_.size();
    for (std::size_t i = 0, at = order_.favourite % count; i < count; ++i, at = at + 1 == count ? 0 : at + 1) {
      Thread& thread = *threads_[at];
      if (!thread.fiber.ended() && (thread.wait == nullptr || thread.wait->over())) return &thread;
    }
    return nullptr;
  }

  const std::function<void()>& kernel_;
  Order& order_;
  Cluster cluster_;
  std::vector<Thread*> threads_;
  std::optional<Fault> fault_;

  friend void emulator::maybe_pause();
};

Order* current_order = nullptr;

}  // namespace

Thread& current() {
  if (running == nullptr) fault("this instruction needs a thread of a launch");
  return *running;
}

void await(Wait&& wait) {
  if (wait.over()) return;
  Thread& thread = current();
  thread.wait = &wait;
  thread.fiber.pause();
  thread.wait = nullptr;
}

void maybe_pause() {
  if (running != nullptr && !current_order->in_turn && current_order->chance(8)) running->fiber.pause();
}

Account launch(const Launch& launch, const std::function<void()>& kernel) {
  if (launch.grid.x % launch.cluster.x != 0 || launch.grid.y % launch.cluster.y != 0 ||
      launch.grid.z % launch.cluster.z != 0)
    fault("a grid of {} x {} x {} blocks is no whole number of its clusters", launch.grid.x, launch.grid.y,
          launch.grid.z);
  blockDim = launch.block;
  gridDim = launch.grid;
  Order order(launch.seed);
  current_order = &order;
  const unsigned blocks = launch.cluster.count();
  const auto stacks = std::make_unique_for_overwrite<std::byte[]>(blocks * launch.block.count() * stack_bytes);
  Account account;
  for (unsigned cluster = 0; cluster < launch.grid.count() / blocks; ++cluster)
    account.most_rows_outside = std::max(
        account.most_rows_outside, Schedule(launch, kernel, order, stacks.get(), cluster).run().most_rows_outside);
  return account;
}

}  // namespace emulator

uint3 threadIdx{}, blockIdx{};
dim3 blockDim, gridDim;
