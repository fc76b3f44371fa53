#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "instructions.hpp"

namespace {

constexpr std::uint32_t seeds[] = {0, 1, 2, 3, 4, 5, 6, 7};

TEST_CASE("each thread of each block runs once, and knows where it is") {
  std::vector<int> runs(2 * 3 * 4 * 5, 0);
  emulator::launch({.grid = {2, 3}, .block = {4, 5}, .seed = 1}, [&] {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x, thread = threadIdx.y * blockDim.x + threadIdx.x;
    ++runs[block * 20 + thread];
  });
  for (const int each : runs) CHECK(each == 1);
}

TEST_CASE("a race between warps shows under some order, and __syncthreads ends it") {
  const auto stale_reads = [](bool synchronised) {
    int stale = 0;
    for (const std::uint32_t seed : seeds) {
      emulator::launch({.grid = {1}, .block = {128}, .shared_bytes = 512, .seed = seed}, [&] {
        auto* const values = emulator::dynamic_shared<float>();
        __syncwarp();
        values[threadIdx.x] = 1;
        if (synchronised) __syncthreads();
        stale += values[(threadIdx.x + 32) % 128] == 1 ? 0 : 1;
      });
    }
    return stale;
  };
  CHECK(stale_reads(false) > 0);
  CHECK(stale_reads(true) == 0);
}

TEST_CASE("lanes exchange values as their masks say") {
  emulator::launch({.grid = {1}, .block = {48}, .seed = 3}, [] {
    const unsigned lane = threadIdx.x % 32;
    if (__shfl_xor_sync(0xffffffffu, lane, 5, 16) != (lane ^ 5)) emulator::fault("shfl.bfly");
    if (__shfl_up_sync(0xffffffffu, lane, 1) != (lane == 0 ? 0 : lane - 1)) emulator::fault("shfl.up");
    if (threadIdx.x < 32 && __ballot_sync(0xffffffffu, lane % 2 == 0) != 0x55555555u) emulator::fault("vote");
    if (lane < 8 && __shfl_sync(0xffu, lane, 3) != 3) emulator::fault("shfl.idx");
  });
}

TEST_CASE("bytes of two words are put together as a selector's nibbles say") {
  CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x6420) == 0x66442200u);
  CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x3517) == 0x33551177u);
}

TEST_CASE("a thread ends while others of its block go on to a barrier") {
  emulator::launch({.grid = {1}, .block = {96}, .seed = 2}, [] {
    if (threadIdx.x < 32) return;
    __syncthreads();
  });
}

TEST_CASE("grids run together, or one after another where they are said to") {
  for (const std::uint32_t seed : seeds) {
    std::vector<int> order;
    int met = 0;
    const auto meet = [&] {
      if (threadIdx.x == 0) ++met;
      for (int polls = 0; polls < 10'000 && met < 2; ++polls) emulator::pause();
      if (met < 2) emulator::fault("the other grid does not run");
      if (gridDim.x == 2 && blockDim.x == 32 && threadIdx.x == 0) order.push_back(1);
    };
    const auto follow = [&] {
      if (gridDim.x != 3 || blockDim.x != 8) emulator::fault("sizes of another grid");
      if (threadIdx.x == 0) order.push_back(2);
    };
    const std::vector<emulator::Grid> grids = {
        {{.grid = {2}, .block = {32}, .seed = seed}, meet, 1, -1, {}},
        {{.grid = {1}, .block = {8}}, meet, 0, -1, {}},
        {{.grid = {3}, .block = {8}}, follow, 0, 0, [&] { order.push_back(0); }}};
    emulator::launch_together(grids);
    CHECK(order == std::vector<int>{1, 1, 0, 2, 2, 2});
  }
}

TEST_CASE("blocks that may not run at once do not") {
  int at_work = 0, most = 0;
  const auto kernel = [&] {
    most = std::max(most, ++at_work);
    for (int i = 0; i < 100; ++i) emulator::pause();
    --at_work;
  };
  const auto most_at_once = [&](unsigned resident) {
    most = 0;
    const emulator::Grid grid{{.grid = {5}, .block = {1}}, kernel, resident, -1, {}};
    emulator::launch_together({&grid, 1});
    return most;
  };
  CHECK(most_at_once(1) == 1);
  CHECK(most_at_once(3) == 3);
  CHECK(most_at_once(0) == 5);
}

TEST_CASE("__syncthreads_or tells every thread whether one said so, time after time") {
  for (const std::uint32_t seed : seeds) {
    emulator::launch({.grid = {1}, .block = {96}, .seed = seed}, [] {
      for (unsigned turn = 0; turn < 8; ++turn) {
        const bool one_says_so = turn % 3 == 1;
        if ((__syncthreads_or(one_says_so && threadIdx.x == 40 + turn ? 1 : 0) != 0) != one_says_so)
          emulator::fault("turn {}", turn);
      }
    });
  }
}

TEST_CASE("a deadlock is reported with what each thread waits for") {
  const auto run = [] {
    emulator::launch({.grid = {1}, .block = {96}, .shared_bytes = 64}, [] {
      const unsigned barrier = test::shared_address(emulator::dynamic_shared<char>());
      if (threadIdx.x == 0) test::mbarrier_init(barrier, 2);
      __syncthreads();
      if (threadIdx.x < 32) return test::named_barrier_sync(3, 64);
      if (threadIdx.x < 64) return __syncwarp(threadIdx.x == 40 ? 0xffffffffu : 0xfffffeffu);
      if (threadIdx.x == 64) test::mbarrier_arrive_expect_tx(barrier, 128);
      test::mbarrier_wait(barrier, 0);
    });
  };
  CHECK_THROWS_WITH_AS(run(), doctest::Contains("threads 0 to 31: waits for barrier 3, to which 32 of 64 threads came"),
                       emulator::Fault);
  CHECK_THROWS_WITH_AS(run(),
                       doctest::Contains("threads 40 to 40: waits for __syncwarp, to which 1 of 32 threads came"),
                       emulator::Fault);
  CHECK_THROWS_WITH_AS(
      run(),
      doctest::Contains(
          "threads 64 to 95: waits for parity 0 of the mbarrier at 0x400, in whose phase 0 1 of 2 arrivals "
          "and 128 bytes are missing"),
      emulator::Fault);
}

TEST_CASE("threads of a warp that come to different instructions are a fault") {
  CHECK_THROWS_WITH_AS(emulator::launch({.grid = {1}, .block = {32}},
                                        [] {
                                          if (threadIdx.x < 16) return __syncwarp();
                                          __shfl_xor_sync(0xffffffffu, 1, 1);
                                        }),
                       doctest::Contains("comes to shfl.sync while others of its 32 wait at __syncwarp"),
                       emulator::Fault);
}

TEST_CASE("mbarriers count arrivals and phases") {
  for (const std::uint32_t seed : seeds) {
    int sum = 0;
    emulator::launch({.grid = {1}, .block = {64}, .shared_bytes = 16, .seed = seed}, [&] {
      const unsigned full = test::shared_address(emulator::dynamic_shared<char>()), empty = full + 8;
      if (threadIdx.x == 0) {
        test::mbarrier_init(full, 32);
        test::mbarrier_init(empty, 32);
      }
      __syncthreads();
      for (unsigned phase = 0; phase < 6; ++phase) {  // one warp adds what the other sees
        if (threadIdx.x < 32) {
          test::mbarrier_wait(empty, phase % 2 ^ 1);
          ++sum;
          test::mbarrier_arrive(full);
        } else {
          test::mbarrier_wait(full, phase % 2);
          if (sum != 32 * static_cast<int>(phase + 1)) emulator::fault("{} in phase {}", sum, phase);
          test::mbarrier_arrive(empty);
        }
      }
    });
  }
}

TEST_CASE("what mbarriers are not made for is a fault") {
  const auto run = [](void (*misuse)(unsigned barrier)) {
    emulator::launch({.grid = {2}, .block = {32}, .shared_bytes = 64, .cluster = {2}}, [=] {
      if (threadIdx.x == 0) misuse(test::shared_address(emulator::dynamic_shared<char>()));
      test::cluster_sync();
    });
  };
  CHECK_THROWS_WITH_AS(run([](unsigned barrier) { test::mbarrier_arrive(barrier); }),
                       doctest::Contains("no mbarrier was made"), emulator::Fault);
  CHECK_THROWS_WITH_AS(run([](unsigned barrier) { test::mbarrier_init(barrier + 4, 1); }),
                       doctest::Contains("is no multiple of 8"), emulator::Fault);
  CHECK_THROWS_WITH_AS(run([](unsigned barrier) {
                         test::mbarrier_init(barrier, 1);
                         test::mbarrier_arrive_expect_tx(barrier, 16);
                         test::mbarrier_arrive(barrier);
                       }),
                       doctest::Contains("all 1 of its phase 0 have come"), emulator::Fault);
  CHECK_THROWS_WITH_AS(run([](unsigned barrier) {
                         test::mbarrier_init(barrier, 1);
                         EMULATED_PTX("barrier.cluster.arrive.relaxed.aligned;");
                         EMULATED_PTX("barrier.cluster.wait.aligned;");
                         test::mbarrier_arrive_cluster(barrier, test::cluster_block_rank() ^ 1);
                       }),
                       doctest::Contains("fence.mbarrier_init has not made known"), emulator::Fault);
}

TEST_CASE("st.async is for clusters of several blocks") {
  const auto run = [](unsigned blocks) {
    emulator::launch({.grid = {blocks}, .block = {1}, .shared_bytes = 16, .cluster = {blocks}}, [] {
      const unsigned barrier = test::shared_address(emulator::dynamic_shared<char>());
      test::mbarrier_init(barrier, 1);
      test::mbarrier_arrive_expect_tx(barrier, 8);
      test::st_async(barrier + 8, {1, 2}, barrier);
      test::mbarrier_wait(barrier, 0);
      if (emulator::dynamic_shared<float>()[3] != 2) emulator::fault("other numbers have come");
    });
  };
  run(2);
  CHECK_THROWS_WITH_AS(run(1), doctest::Contains("st.async in a cluster of one block"), emulator::Fault);
}

TEST_CASE("shared memory is NaN at first, and ends where the launch says") {
  CHECK_THROWS_WITH_AS(emulator::launch({.grid = {1}, .block = {32}, .shared_bytes = 64},
                                        [] {
                                          const auto* const memory = emulator::dynamic_shared<float>();
                                          if (!std::isnan(memory[threadIdx.x % 16])) emulator::fault("no NaN");
                                          test::mbarrier_init(test::shared_address(memory) + 64, 1);
                                        }),
                       doctest::Contains("8 bytes at shared address 0x440 are outside of the block's, 0x400 to 0x440"),
                       emulator::Fault);
}

TEST_CASE("an instruction that the emulator does not know is named") {
  CHECK_THROWS_WITH_AS(emulator::launch({.grid = {1}, .block = {1}}, [] { EMULATED_PTX("frobnicate.b32;"); }),
                       doctest::Contains("does not know the instruction frobnicate.b32"), emulator::Fault);
}

}  // namespace
