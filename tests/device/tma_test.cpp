#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "emulator/tensor_map.hpp"
#include "instructions.hpp"
#include "matrices.hpp"

namespace {

using kiln::bf16;

emulator::TensorMap map_of(test::Matrix<bf16>& matrix, unsigned width, unsigned height, unsigned swizzle) {
  return emulator::describe(matrix.data(), 2,
                            {static_cast<unsigned>(matrix.columns()), static_cast<unsigned>(matrix.rows())},
                            {static_cast<std::uint64_t>(matrix.stride()) * 2}, {width, height}, swizzle);
}

/// For the first thread of a block: a barrier for one arrival, which all threads may use after a __syncthreads.
unsigned barrier_at(unsigned address) {
  if (threadIdx.x == 0) {
    test::mbarrier_init(address, 1);
    test::fence_mbarrier_init();
  }
  return address;
}

TEST_CASE("boxes come and go under every swizzle, zeros for what lies outside of the tensor") {
  for (const unsigned swizzle : {0u, 32u, 64u, 128u}) {
    for (const std::uint32_t seed : {0u, 1u, 2u}) {
      CAPTURE(swizzle);
      CAPTURE(seed);
      const unsigned width = swizzle == 0 ? 24 : swizzle / 2, bytes = width * 16 * 2;
      auto x = test::Matrix<bf16>::random(19, 70, 80, 1);
      test::Matrix<bf16> y(19, 70, 80);
      const auto from = map_of(x, width, 16, swizzle), to = map_of(y, width, 16, swizzle);
      bool zeros = true;
      emulator::launch({.grid = {(70 + width - 1) / width, 2}, .block = {32}, .shared_bytes = 8192, .seed = seed}, [&] {
        char* const memory = emulator::dynamic_shared<char>();
        const unsigned tile = test::shared_address(memory), barrier = barrier_at(tile + bytes);
        const int column = static_cast<int>(blockIdx.x * width), row = static_cast<int>(blockIdx.y * 16);
        if (threadIdx.x != 0) return;
        test::mbarrier_arrive_expect_tx(barrier, bytes);
        test::tma_load(tile, &from, barrier, column, row);
        test::mbarrier_wait(barrier, 0);
        if (row + 15 >= 19) {
          const unsigned last = emulator::swizzled(tile + 15 * width * 2, swizzle) - tile;
          zeros = zeros && memory[last] == 0 && memory[last + 1] == 0;
        }
        test::tma_store(&to, tile, column, row);
        test::tma_store_wait_read();
      });
      CHECK(zeros);
      CHECK(y.margins_untouched());
      for (int row = 0; row < 19; ++row) {
        for (int column = 0; column < 70; ++column) CHECK(y.at(row, column).bits == x.at(row, column).bits);
      }
    }
  }
}

TEST_CASE("the 128-byte swizzle exchanges the chunks of 16 bytes of a row by the row's number") {
  CHECK(emulator::swizzled(1024 + 3 * 128 + 2 * 16 + 5, 128) == 1024 + 3 * 128 + (2 ^ 3) * 16 + 5);
  CHECK(emulator::swizzled(1024 + 3 * 64 + 2 * 16, 64) == 1024 + 3 * 64 + (2 ^ 1) * 16);
  CHECK(emulator::swizzled(1024 + 5 * 32 + 16, 32) == 1024 + 5 * 32 + (1 ^ 1) * 16);
}

TEST_CASE("a multicast reaches each block of its mask, and reports to each block's own barrier") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    auto x = test::Matrix<bf16>::random(2, 64, 64, 1);
    const auto map = map_of(x, 64, 1, 128);
    test::Matrix<bf16> y(2, 128, 128);
    emulator::launch({.grid = {2}, .block = {64}, .shared_bytes = 2048, .cluster = {2}, .seed = seed}, [&] {
      auto* const memory = emulator::dynamic_shared<bf16>();
      const unsigned tile = test::shared_address(memory), barrier = barrier_at(tile + 1024),
                     rank = test::cluster_block_rank();
      test::cluster_sync();
      if (threadIdx.x == 0) {  // each block loads one half for both
        test::mbarrier_arrive_expect_tx(barrier, 256);
        test::tma_load_multicast(tile + rank * 512, &map, barrier, 0, static_cast<int>(rank), 3);
      }
      test::mbarrier_wait(barrier, 0);
      for (unsigned half = 0; half < 2; ++half)
        y.at(rank, half * 64 + threadIdx.x) =
            memory[emulator::swizzled(tile + half * 512 + threadIdx.x * 2, 128) / 2 - tile / 2];
      test::cluster_sync();
    });
    for (int i = 0; i < 128; ++i) {
      CHECK(y.at(0, i).bits == x.at(i / 64, i % 64).bits);
      CHECK(y.at(1, i).bits == x.at(i / 64, i % 64).bits);
    }
  }
}

/// The first element that is stored after `write` has been to shared memory before and after the store was issued.
template <typename Write>
unsigned stored(Write write) {
  test::Matrix<bf16> y(1, 64, 64);
  const auto map = map_of(y, 64, 1, 0);
  emulator::launch({.grid = {1}, .block = {1}, .shared_bytes = 128}, [&] {
    auto* const memory = emulator::dynamic_shared<char>();
    write(memory, 0);
    test::tma_store(&map, test::shared_address(memory), 0, 0);
    write(memory, 1);
    test::tma_store_wait();
  });
  return y.at(0, 0).bits;
}

TEST_CASE("a store reads shared memory late: what is written there before it was waited for may be what it stores") {
  CHECK(stored([](char* memory, int value) {
          std::memset(memory, value, 128);
          test::fence_proxy_async();
        }) == 0x0101);
}

TEST_CASE("a store does not see what no fence.proxy.async has published") {
  CHECK(stored([](char* memory, int value) { std::memset(memory, value, 128); }) == 0xffff);
  CHECK(stored([](char* memory, int value) {
          std::memset(memory, value, 128);
          if (value == 0) test::fence_proxy_async();
        }) == 0);
}

/// Two sums of 1 and 2, in shared memory by turns, to floats of 10; `published` before each, and `read` before the second is written.
std::vector<float> sums_of(bool published, bool read, std::uint32_t seed) {
  std::vector<float> sums(12, 10.0f);
  emulator::launch({.grid = {1}, .block = {1}, .shared_bytes = 128, .seed = seed}, [&] {
    auto* const values = emulator::dynamic_shared<float>();
    for (const float value : {1.0f, 2.0f}) {
      std::fill_n(values, 8, value);
      if (published) test::fence_proxy_async();
      test::bulk_add(sums.data() + 4, test::shared_address(values), 16);
      if (read) test::tma_store_wait_read();
    }
    test::tma_store_wait();
  });
  return sums;
}

TEST_CASE("a bulk sum adds to as many floats as it says what shared memory held, published, when it was read") {
  for (const std::uint32_t seed : {0u, 1u, 2u})
    CHECK(sums_of(true, true, seed) == std::vector<float>{10, 10, 10, 10, 13, 13, 13, 13, 10, 10, 10, 10});
  CHECK(sums_of(true, false, 0)[4] == 14);  // 2 had replaced 1 before either was read
  CHECK(std::isnan(sums_of(false, true, 0)[4]));
}

TEST_CASE("a bulk sum by other than multiples of 16 bytes is a fault") {
  std::vector<float> sums(8);
  const auto run = [&](std::size_t to, unsigned from, unsigned bytes) {
    emulator::launch({.grid = {1}, .block = {1}, .shared_bytes = 128}, [&] {
      test::bulk_add(sums.data() + to, test::shared_address(emulator::dynamic_shared<char>()) + from, bytes);
      test::tma_store_wait();
    });
  };
  CHECK_NOTHROW(run(4, 16, 16));
  CHECK_THROWS_WITH_AS(run(1, 0, 16), doctest::Contains("not all multiples of 16"), emulator::Fault);
  CHECK_THROWS_WITH_AS(run(0, 4, 16), doctest::Contains("not all multiples of 16"), emulator::Fault);
  CHECK_THROWS_WITH_AS(run(0, 0, 8), doctest::Contains("not all multiples of 16"), emulator::Fault);
}

TEST_CASE("a block that ends under its copies is a fault") {
  auto x = test::Matrix<bf16>::random(1, 64, 64, 1);
  const auto map = map_of(x, 64, 1, 0);
  const auto run = [&](bool loads) {
    emulator::launch({.grid = {1}, .block = {32}, .shared_bytes = 256}, [&] {
      const unsigned tile = test::shared_address(emulator::dynamic_shared<char>()), barrier = barrier_at(tile + 128);
      if (threadIdx.x != 0) return;
      test::mbarrier_arrive_expect_tx(barrier, 128);
      loads ? test::tma_load(tile, &map, barrier, 0, 0) : test::tma_store(&map, tile, 0, 0);
    });
  };
  CHECK_THROWS_WITH_AS(run(true), doctest::Contains("ends while loads into its shared memory are under way"),
                       emulator::Fault);
  CHECK_THROWS_WITH_AS(run(false), doctest::Contains("yet to read shared memory"), emulator::Fault);
}

}  // namespace
