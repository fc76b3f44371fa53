#include "emulator/barriers.hpp"

#include "emulator/fault.hpp"

namespace emulator {

void NamedBarrier::arrive(unsigned threads) {
  if (threads % 32 != 0) fault("a barrier of {} threads, which are no whole warps", threads);
  if (arrived > 0 && threads != expected)
    fault("a barrier of {} threads, where others came to one of {}", threads, expected);
  expected = threads;
  ++arrived;
}

void NamedBarrier::settle(unsigned live) {
  if (arrived == 0 || arrived < (expected == 0 ? live : expected)) return;
  arrived = 0;
  ++rounds;
}

void Mbarrier::arrive() {
  if (pending == 0) fault("an arrival at an mbarrier to which all {} of its phase {} have come", arrivals, phase);
  --pending;
  settle();
}

void Mbarrier::expect(std::int64_t more) {
  constexpr std::int64_t most = (1 << 20) - 1;
  bytes += more;
  if (bytes > most || bytes < -most) fault("an mbarrier counts {} bytes, and can count {}", bytes, most);
  settle();
}

void Mbarrier::settle() {
  if (pending > 0 || bytes != 0) return;
  ++phase;
  pending = arrivals;
}

}  // namespace emulator
