// wgmma, of operands that the tensor memory accelerator has laid down.
#include <doctest/doctest.h>

#include <string>

#include "emulator/launch.hpp"
#include "emulator/tensor_map.hpp"
#include "instructions.hpp"
#include "matrices.hpp"

namespace {

/// 64 x k by k x n, k being what one row of a's box holds or 32: how both lie, and what the instruction is told of it.
struct Product {
  const char* type;
  unsigned element_bytes, n, swizzle;
  bool a_along_k, b_along_k;

  [[nodiscard]] unsigned step() const { return 32 / element_bytes; }  // of k, in one instruction
  [[nodiscard]] unsigned width() const { return swizzle == 0 ? 16 : swizzle; }
  [[nodiscard]] unsigned k() const {
    return a_along_k && b_along_k && swizzle != 0 ? width() / element_bytes : 2 * step();
  }
};

/// An operand's `outer` x k elements in shared memory, in boxes as wide as the swizzle that lie one after another.
struct Operand {
  unsigned outer, k, element_bytes, swizzle, width;
  bool along_k;

  [[nodiscard]] unsigned rows() const { return along_k ? outer : k; }
  [[nodiscard]] unsigned box_elements() const { return width / element_bytes; }
  [[nodiscard]] unsigned boxes() const { return ((along_k ? k : outer) + box_elements() - 1) / box_elements(); }
  [[nodiscard]] unsigned box_bytes() const { return (rows() * width + 1023) / 1024 * 1024; }
  [[nodiscard]] unsigned bytes() const { return boxes() * box_bytes(); }

  template <typename T>
  emulator::TensorMap map(test::Matrix<T>& matrix) const {
    return emulator::describe(
        matrix.data(), element_bytes, {static_cast<unsigned>(matrix.columns()), static_cast<unsigned>(matrix.rows())},
        {static_cast<std::uint64_t>(matrix.stride()) * element_bytes}, {box_elements(), rows()}, swizzle);
  }
  void load(unsigned to, const emulator::TensorMap& from, unsigned barrier) const {
    for (unsigned box = 0; box < boxes(); ++box)
      test::tma_load(to + box * box_bytes(), &from, barrier, static_cast<int>(box * box_elements()), 0);
  }
  /// Of the elements from `first_k` on.
  [[nodiscard]] std::uint64_t descriptor(unsigned address, unsigned first_k) const {
    const unsigned atom = 8 * width;  // bytes: eight rows of a box
    unsigned start = address, leading = box_bytes(), stride = atom;
    if (along_k) {
      start += first_k / box_elements() * box_bytes() + first_k % box_elements() * element_bytes;
    } else {
      start += first_k / 8 * atom;
      if (swizzle == 0) std::swap(leading, stride);  // across k without a swizzle, the two change places
    }
    const std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return mode << 62 | std::uint64_t{stride >> 4} << 32 | std::uint64_t{leading >> 4} << 16 | (start & 0x3ffffu) >> 4;
  }
};

std::string instruction(const Product& of) {
  std::string registers;
  for (unsigned i = 0; i < of.n / 2; ++i) registers += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  const std::string majors = of.element_bytes == 1 ? "" : fmt::format(", {:d}, {:d}", !of.a_along_k, !of.b_along_k);
  return fmt::format(
      "{{.reg .pred adds; setp.ne.b32 adds, %{}, 0; wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{} {{{}}}, %{}, %{}, adds, 1, 1{};}}",
      of.n / 2 + 2, of.n, of.step(), of.type, of.type, registers, of.n / 2, of.n / 2 + 1, majors);
}

/// The largest distance from the product in double.
template <typename T>
double error_of(const Product& of, std::uint32_t seed) {
  const Operand a{64, of.k(), of.element_bytes, of.swizzle, of.width(), of.a_along_k};
  const Operand b{of.n, of.k(), of.element_bytes, of.swizzle, of.width(), of.b_along_k};
  const auto stored = [](const Operand& operand, std::uint32_t from) {
    const unsigned columns = operand.along_k ? operand.k : operand.outer;
    return test::Matrix<T>::random(operand.rows(), columns, (columns + 31) / 16 * 16, from);
  };
  auto a_matrix = stored(a, 1), b_matrix = stored(b, 2);
  const emulator::TensorMap a_map = a.map(a_matrix), b_map = b.map(b_matrix);
  test::Matrix<float> y(64, of.n, of.n);
  const std::string text = instruction(of);
  const emulator::Program program(text);

  emulator::launch({.grid = {1}, .block = {128}, .shared_bytes = a.bytes() + b.bytes() + 16, .seed = seed}, [&] {
    const unsigned memory = test::shared_address(emulator::dynamic_shared<char>()),
                   barrier = memory + a.bytes() + b.bytes();
    if (threadIdx.x == 0) {
      test::mbarrier_init(barrier, 1);
      test::fence_mbarrier_init();
      const unsigned loaded = a.boxes() * a.rows() * a.width + b.boxes() * b.rows() * b.width;
      test::mbarrier_arrive_expect_tx(barrier, loaded);
      a.load(memory, a_map, barrier);
      b.load(memory + a.bytes(), b_map, barrier);
    }
    __syncthreads();
    test::mbarrier_wait(barrier, 0);

    float sums[128];
    test::wgmma_fence();
    for (unsigned k = 0; k < of.k(); k += of.step()) {
      emulator::Operand operands[131];
      for (unsigned i = 0; i < of.n / 2; ++i) operands[i] = emulator::both(sums[i]);
      operands[of.n / 2] = emulator::in(a.descriptor(memory, k));
      operands[of.n / 2 + 1] = emulator::in(b.descriptor(memory + a.bytes(), k));
      operands[of.n / 2 + 2] = emulator::in(static_cast<int>(k != 0));
      emulator::run(program, operands);
    }
    test::wgmma_commit();
    test::wgmma_wait();
    const unsigned thread = threadIdx.x;
    for (unsigned i = 0; i < of.n / 2; ++i)
      y.at(16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (thread % 4) + i % 2) = sums[i];
  });

  double largest = 0;
  for (unsigned row = 0; row < 64; ++row) {
    for (unsigned column = 0; column < of.n; ++column) {
      double sum = 0;
      for (unsigned k = 0; k < of.k(); ++k)
        sum += (of.a_along_k ? a_matrix.value(row, k) : a_matrix.value(k, row)) *
               (of.b_along_k ? b_matrix.value(column, k) : b_matrix.value(k, column));
      largest = std::max(largest, test::distance(y.value(row, column), sum));
    }
  }
  return largest;
}

TEST_CASE("wgmma multiplies tiles of every width") {
  for (unsigned n = 8; n <= 256; n += 8) {
    CAPTURE(n);
    CHECK(error_of<kiln::bf16>({"bf16", 2, n, 128, true, true}, n % 5) == 0);
  }
}

TEST_CASE("wgmma takes operands of 16 bits along k and across it, under every swizzle") {
  for (const unsigned swizzle : {0u, 32u, 64u, 128u}) {
    for (const bool a_along_k : {false, true}) {
      for (const bool b_along_k : {false, true}) {
        CAPTURE(swizzle);
        CAPTURE(a_along_k);
        CAPTURE(b_along_k);
        CHECK(error_of<kiln::f16>({"f16", 2, 96, swizzle, a_along_k, b_along_k}, 1) == 0);
      }
    }
  }
}

TEST_CASE("wgmma takes operands of 8 bits along k") {
  CHECK(error_of<kiln::e4m3>({"e4m3", 1, 136, 128, true, true}, 1) == 0);
  CHECK(error_of<kiln::e5m2>({"e5m2", 1, 64, 64, true, true}, 2) == 0);
}

/// Adds a product of zeros to 64 x 8 sums, as a group of its own.
void add_zeros(float (&sums)[4]) {
  char* const memory = emulator::dynamic_shared<char>();
  const std::uint64_t descriptor =
      (test::shared_address(memory) >> 4) | std::uint64_t{8} << 16 | std::uint64_t{16} << 32;
  EMULATED_PTX("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;",
               emulator::both(sums[0]), emulator::both(sums[1]), emulator::both(sums[2]), emulator::both(sums[3]),
               emulator::in(descriptor));
  test::wgmma_commit();
}

template <typename Body>
void with_zeros_in_shared_memory(std::uint32_t seed, Body body) {
  emulator::launch({.grid = {1}, .block = {128}, .shared_bytes = 4096, .seed = seed}, [&] {
    if (threadIdx.x == 0) std::memset(emulator::dynamic_shared<char>(), 0, 4096);
    test::fence_proxy_async();
    __syncthreads();
    body();
  });
}

TEST_CASE("sums of wgmma are NaN until their own group is waited for") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    with_zeros_in_shared_memory(seed, [] {
      float first[4] = {1, 1, 1, 1}, second[4] = {2, 2, 2, 2};
      test::wgmma_fence();
      add_zeros(first);
      add_zeros(second);
      if (!std::isnan(first[0])) emulator::fault("the sum is {} before it is waited for", first[0]);
      EMULATED_PTX("wgmma.wait_group.sync.aligned 1;");
      if (first[0] != 1 || !std::isnan(second[0])) emulator::fault("the sums are {} and {}", first[0], second[0]);
      test::wgmma_wait();
      if (second[0] != 2) emulator::fault("the sum is {}", second[0]);
    });
  }
}

TEST_CASE("wgmma without wgmma.fence is a fault") {
  const auto run = [] {
    with_zeros_in_shared_memory(0, [] {
      float sums[4] = {1, 1, 1, 1};
      add_zeros(sums);
      test::wgmma_wait();
    });
  };
  CHECK_THROWS_WITH_AS(run(), doctest::Contains("wgmma without wgmma.fence"), emulator::Fault);
}

}  // namespace
