// How a block takes part in a launch of a team: its epoch, flags to and from other ranks, and its end. See protocol.cuh. sm_70 and later.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/team/protocol.cuh"

namespace kiln::team {

/// ld.acquire.sys: what its writer wrote before it is seen by this thread, and after a barrier by its block.
__device__ __forceinline__ unsigned long long load_acquire_system(const unsigned long long* flag) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

/// st.release.sys: after a barrier of the block, for what all its threads wrote before.
__device__ __forceinline__ void store_release_system(unsigned long long* flag, unsigned long long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

/// A clock of the device.
__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

namespace detail {

/// The first to fail since the team was reset tells the host why. `seen` is the flag's, `expected` what it was compared with. `told` is
/// Control::told for Report::peer_failed, else 0.
inline __device__ __noinline__ void report_failure(Control& own, Report& to, Report::State why, int rank, int flag,
                                                   unsigned long long seen, unsigned long long expected,
                                                   unsigned told) {
  if (atomicExch(&own.failed, 1u) != 0) return;
  volatile Report& words = to;
  words.rank = why == Report::peer_failed ? static_cast<int>(told & 0xff) : rank;
  words.flag = flag;
  words.expected_epoch = static_cast<unsigned>(expected >> 16);
  words.seen_epoch = static_cast<unsigned>(seen >> 40);
  words.expected_tag = static_cast<unsigned>(expected) & 0xffff;
  words.seen_tag = static_cast<unsigned>(seen >> 24) & 0xffff;
  words.peer_state = told >> 16 & 0xff;
  words.peer_rank = static_cast<int>(told >> 8 & 0xff);
  __threadfence_system();
  words.state = why;
}

}  // namespace detail

/// A launch as one block of it sees it. All threads of the block make one before their first access to global memory, and call end() last.
class Epoch {
 public:
  struct storage {
    unsigned epoch;
    bool failed;
  };

  /// After the predecessor has ended; with a barrier.
  __device__ __forceinline__ Epoch(const Team& team, storage& shared) : team_(team) {
    wait_for_predecessor();
    if (threadIdx.x == 0) {
      const bool first = (blockIdx.x | blockIdx.y | blockIdx.z) == 0;
      const unsigned running = first ? atomicAdd(&own().running, 1u) : 0;
      epoch_ = (*static_cast<const volatile unsigned*>(&own().epoch) + 1) & 0xffffff;
      const unsigned failed = *static_cast<const volatile unsigned*>(&own().failed);
      const unsigned told = *static_cast<const volatile unsigned*>(&own().told);  // read at once with the others
      failed_ = failed != 0 || running != 0 || told != 0;
      if (failed_) fail(running != 0 ? Report::two_launches : Report::peer_failed, team.rank, 0, 0, told);
      shared = {epoch_, failed_};
    }
    __syncthreads();
    epoch_ = shared.epoch;
    failed_ = shared.failed;
  }

  /// Bytes from a symmetric workspace in the first half to itself in this launch's.
  __device__ __forceinline__ unsigned long long half() const { return (epoch_ & 1) == 0 ? 0 : team_.half_bytes; }

  /// Whether this block takes part no more: it sends and awaits nothing, and its share of outputs becomes NaN. As of the last await_all().
  __device__ __forceinline__ bool failed() const { return failed_; }

  /// One thread tells `rank` that what the block wrote to its memory before the last barrier is there. `rows` of 24 bits.
  __device__ __forceinline__ void send(int rank, int index, int rows) const {
    store_release_system(&team_.control[rank]->flags[team_.rank][at(index)],
                         expected() << 24 | static_cast<unsigned>(rows));
  }

  /// One thread waits for flag `index` of `rank`, and returns its rows, or -1 where the launch has failed. For use within await_all().
  __device__ __forceinline__ int await(int rank, int index) const {
    const unsigned long long* flag = &own().flags[rank][at(index)];
    unsigned long long begun = 0, seen;
    Report::State why;
    unsigned told = 0;
    for (unsigned polls = 1;; ++polls) {
      seen = load_acquire_system(flag);
      if (seen >> 24 == expected()) return static_cast<int>(seen & 0xffffff);
      why = Report::other_plan;
      if (seen >> 40 == epoch_ && seen != 0) break;
      if (polls % 32 != 0) continue;
      if (*static_cast<const volatile unsigned*>(&own().failed) != 0) return -1;
      why = Report::peer_failed;
      told = *static_cast<const volatile unsigned*>(&own().told);
      if (told != 0) break;
      const unsigned long long now = nanoseconds();
      if (begun == 0) begun = now;
      why = Report::timed_out;
      if (now - begun > team_.timeout_ns) break;
      why = Report::aborted;
      if (polls % 1024 == 0 && *static_cast<const volatile unsigned*>(&team_.report->abort) != 0) break;
    }
    return fail(why, rank, index, seen, told);
  }

  /// Lets threads 0 to `waiters` - 1, which a warp holds, each carry out `wait(thread)`: it awaits flags and returns false where one failed.
  /// Ends with a barrier, after which all threads see what the senders wrote. Returns false where the block has failed, now or before.
  template <typename Wait>
  __device__ __forceinline__ bool await_all(int waiters, Wait wait) {
    const int thread = static_cast<int>(threadIdx.x);
    const bool fails = !failed_ && thread < waiters && !wait(thread);
    failed_ = __syncthreads_or(fails || failed_) != 0;
    return !failed_;
  }

  /// When this block's last access of the team's memory is done: the last block to say so ends the launch.
  __device__ __forceinline__ void end() const {
    __syncthreads();
    if (threadIdx.x == 0) end_by_one(failed_);
  }

  /// Ends the launch by one thread.
  /// `failed`: one thread of the block failed, at whatever wait.
  /// REQUIRES: all other threads of the block are done.
  __device__ __forceinline__ void end_by_one(bool failed) const {
    if (failed) tell_peers();
    __threadfence();
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    if (atomicAdd(&own().finished, 1u) != blocks - 1) return;
    __threadfence();
    for (unsigned& each : own().claimed) each = 0;
    own().finished = 0;
    own().running = 0;
    own().epoch = epoch_;
  }

 private:
  __device__ __forceinline__ Control& own() const { return *team_.control[team_.rank]; }
  __device__ __forceinline__ int at(int index) const { return static_cast<int>(epoch_ & 1) * flags_per_epoch + index; }
  __device__ __forceinline__ unsigned long long expected() const {
    return static_cast<unsigned long long>(epoch_) << 16 | team_.tag;
  }

  /// `told`: Control::told, for Report::peer_failed.
  __device__ __forceinline__ int fail(Report::State why, int rank, int index, unsigned long long seen,
                                      unsigned told = 0) const {
    detail::report_failure(own(), *team_.report, why, rank, index, seen, expected(), told);
    return -1;
  }
  /// Inlined, and once in a kernel: a kernel's parameter whose address reaches a call takes registers that wgmma needs (NVRTC 13.0: C7512).
  __device__ __forceinline__ void tell_peers() const {
    const volatile Report& why = *team_.report;
    const unsigned state = why.state;
    if (state == Report::none || state == Report::peer_failed)
      return;                // the block that reports tells, or the peer that told this rank
    __threadfence_system();  // the rank was written before the state
    const unsigned told =
        1u << 31 | state << 16 | static_cast<unsigned>(why.rank) << 8 | static_cast<unsigned>(team_.rank);
    for (int peer = 0; peer < team_.world; ++peer) {
      if (peer != team_.rank) *static_cast<volatile unsigned*>(&team_.control[peer]->told) = told;
    }
  }

  const Team& team_;
  unsigned epoch_ = 0;
  bool failed_ = false;
};

/// Hands out 0, 1, 2, ... to the blocks of a launch, each number to one of them. A number is asked for while the block is at work on the one
/// before it. All threads of the block make one, after its Epoch.
class Claims {
 public:
  struct storage {
    unsigned numbers[2];
  };

  /// `word` of Control::claimed is this counter's; it begins at `first`.
  __device__ __forceinline__ Claims(const Team& team, int word, storage& shared, unsigned first = 0)
      : counter_(&team.control[team.rank]->claimed[word]), shared_(shared), first_(first) {
    claim();
  }

  /// The block's next number, after a barrier.
  __device__ __forceinline__ unsigned next() {
    turn_ ^= 1;  // so that no thread still has to read the place that is written to
    if (threadIdx.x == 0) {
      shared_.numbers[turn_] = ahead_;
      claim();
    }
    __syncthreads();
    return shared_.numbers[turn_];
  }

 private:
  __device__ __forceinline__ void claim() {
    if (threadIdx.x == 0) ahead_ = first_ + atomicAdd(counter_, 1u);
  }

  unsigned* counter_;
  storage& shared_;
  unsigned first_;
  unsigned ahead_ = 0;
  unsigned turn_ = 0;
};

}  // namespace kiln::team
