// The three kinds of barriers: of a block by number, of a cluster, and in shared memory.
#pragma once

#include <cstdint>

namespace emulator {

/// bar.sync and bar.arrive. Open until the first thread comes.
struct NamedBarrier {
  unsigned expected = 0;  // 0: all of the block's threads that have not ended
  unsigned arrived = 0;
  unsigned rounds = 0;

  /// One thread more; throws Fault where others expect another number.
  void arrive(unsigned threads);
  /// Lets all go if those who are expected have come.
  void settle(unsigned live);
};

/// barrier.cluster: every thread arrives, and later waits.
struct ClusterBarrier {
  unsigned arrived = 0;
  unsigned rounds = 0;

  void settle(unsigned live) {
    if (arrived == 0 || arrived < live) return;
    arrived = 0;
    ++rounds;
  }
};

/// An mbarrier object. `phase` counts the completed ones.
struct Mbarrier {
  unsigned arrivals = 0;   // that a phase takes
  unsigned pending = 0;    // of them
  std::int64_t bytes = 0;  // announced and yet to come; below 0 when they come first
  unsigned phase = 0;
  bool fenced = false;  // seen beyond the thread that made it
  unsigned maker = 0;   // that thread

  void arrive();
  void expect(std::int64_t more);
  void complete(std::int64_t fewer) { expect(-fewer); }

 private:
  void settle();
};

}  // namespace emulator
