#include "emulator/launch.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cuda.hpp"
#include "emulator/machine.hpp"
#include "emulator/report.hpp"

namespace emulator {
namespace {

constexpr std::size_t stack_bytes = 256 << 10;
constexpr std::size_t stack_stride = stack_bytes + 4096 + 320;  // else all stacks' tops share a set of each cache
constexpr std::uint64_t most_steps_in_flight = 64;

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
  std::uint64_t steps = 0;        // of the schedule
  unsigned favourite = 0;         // thread that goes first, and those that follow it, as far as they get

  bool chance(unsigned one_in) { return one_in != 0 && random() % one_in == 0; }
};

using Stacks = std::unique_ptr<std::byte[]>;

/// A cluster, and the threads that it consists of.
struct Running {
  Running(const Grid& of, Stacks its_stacks, unsigned number) : grid(of), stacks(std::move(its_stacks)) {
    const Launch& launch = grid.launch;
    cluster.grid_dim = launch.grid;
    cluster.block_dim = launch.block;
    const dim3 clusters{launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                        launch.grid.z / launch.cluster.z};
    const uint3 at = index_in(clusters, number);
    for (unsigned rank = 0; rank < launch.cluster.count(); ++rank) {
      const uint3 within = index_in(launch.cluster, rank);
      const uint3 index{at.x * launch.cluster.x + within.x, at.y * launch.cluster.y + within.y,
                        at.z * launch.cluster.z + within.z};
      cluster.blocks.emplace_back(cluster, rank, index, launch.block.count(), launch.shared_bytes);
    }
  }

  const Grid& grid;
  Stacks stacks;
  Cluster cluster;
};

/// The clusters of a grid that have yet to run, and stacks for their threads.
struct Pending {
  const Grid& grid;
  unsigned next = 0, ended = 0;
  std::vector<Stacks> stacks;

  [[nodiscard]] unsigned count() const { return grid.launch.grid.count() / grid.launch.cluster.count(); }
  [[nodiscard]] unsigned resident() const { return grid.resident == 0 ? count() : std::min(grid.resident, count()); }
  Stacks take_stacks() {
    if (stacks.empty())
      return std::make_unique_for_overwrite<std::byte[]>(grid.launch.cluster.count() * grid.launch.block.count() *
                                                         stack_stride);
    Stacks taken = std::move(stacks.back());
    stacks.pop_back();
    return taken;
  }
};

class Schedule {
 public:
  Schedule(std::span<const Grid> grids, Order& order) : order_(order) {
    for (const Grid& grid : grids) pending_.push_back({grid, 0, 0, {}});
    begin_those_after(-1);
  }

  Account run() {
    while (!running_.empty()) {
      if (order_.chance(order_.in_flight_one_in) || is_overdue())
        one_of_running().cluster.in_flight.run_one(order_.random);
      if (Thread* next = ready()) {
        resume(*next);
        if (next->fiber.ended() && next->block->cluster.live() == 0) finish(next->block->cluster);
      } else if (!any_in_flight()) {
        fault("deadlock: {}", who_waits());
      }
    }
    return account_;
  }

 private:
  void begin_those_after(int ended) {
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      if (pending_[i].grid.after != ended) continue;
      if (pending_[i].grid.before) pending_[i].grid.before();
      for (unsigned started = 0; started < pending_[i].resident(); ++started) start(i);
    }
  }

  void start(std::size_t grid) {
    Pending& of = pending_[grid];
    if (of.next == of.count()) return;
    Running& made = *running_.emplace_back(std::make_unique<Running>(of.grid, of.take_stacks(), of.next++));
    made.cluster.grid = pending_.size() == 1 ? -1 : static_cast<int>(grid);
    std::size_t threads = 0;
    for (Block& block : made.cluster.blocks) {
      for (Thread& thread : block.threads) {
        thread.index = index_in(of.grid.launch.block, thread.number);
        thread.fiber.start({made.stacks.get() + threads++ * stack_stride, stack_bytes},
                           [this, &thread, &kernel = of.grid.kernel] { body(thread, kernel); });
        threads_.push_back(&thread);
      }
    }
  }

  /// The next cluster of the same grid takes the place of one that has ended.
  void finish(Cluster& cluster) {
    while (cluster.in_flight.run_one(order_.random)) {
    }
    account_.most_rows_outside = std::max(account_.most_rows_outside, cluster.most_rows_outside);
    std::erase_if(threads_, [&](const Thread* each) { return &each->block->cluster == &cluster; });
    const auto found =
        std::find_if(running_.begin(), running_.end(), [&](const auto& each) { return &each->cluster == &cluster; });
    const auto grid = static_cast<std::size_t>(std::max(cluster.grid, 0));
    pending_[grid].stacks.push_back(std::move((*found)->stacks));
    running_.erase(found);
    start(grid);
    if (++pending_[grid].ended == pending_[grid].count()) begin_those_after(static_cast<int>(grid));
  }

  /// A thread that polls is always ready, so that among several grids it never happens that nothing else is left to do.
  [[nodiscard]] bool is_overdue() const {
    return order_.in_turn && pending_.size() > 1 && order_.steps % most_steps_in_flight == 0;
  }

  Running& one_of_running() {
    return running_.size() == 1 ? *running_.front() : *running_[order_.random() % running_.size()];
  }

  bool any_in_flight() {
    for (const auto& each : running_) {
      if (each->cluster.in_flight.run_one(order_.random)) return true;
    }
    return false;
  }

  [[nodiscard]] std::string who_waits() const {
    std::string lines;
    for (const auto& each : running_) lines += emulator::who_waits(each->cluster);
    return lines;
  }

  void body(Thread& thread, const std::function<void()>& kernel) {
    try {
      kernel();
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
    ++order_.steps;
    threadIdx = thread.index;
    blockIdx = thread.block->index;
    blockDim = thread.block->cluster.block_dim;
    gridDim = thread.block->cluster.grid_dim;
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

  Order& order_;
  std::vector<Pending> pending_;  // by grid
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<Thread*> threads_;  // of those
  std::optional<Fault> fault_;
  Account account_;
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

void pause() {
  if (running == nullptr) return;
  if (!current_order->in_turn) current_order->favourite = static_cast<unsigned>(current_order->random());
  running->fiber.pause();
}

std::uint64_t nanoseconds() { return current_order->steps; }

Account launch(const Launch& launch, const std::function<void()>& kernel) {
  const Grid alone{launch, kernel, 1, -1, {}};
  return launch_together({&alone, 1});
}

Account launch_together(std::span<const Grid> grids) {
  for (const Grid& grid : grids) {
    const dim3 blocks = grid.launch.grid, cluster = grid.launch.cluster;
    if (blocks.x % cluster.x != 0 || blocks.y % cluster.y != 0 || blocks.z % cluster.z != 0)
      fault("a grid of {} x {} x {} blocks is no whole number of its clusters", blocks.x, blocks.y, blocks.z);
  }
  Order order(grids.front().launch.seed);
  current_order = &order;
  return Schedule(grids, order).run();
}

}  // namespace emulator

uint3 threadIdx{}, blockIdx{};
dim3 blockDim, gridDim;
