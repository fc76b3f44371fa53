#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention_decode.hpp"

namespace {

using namespace test;

constexpr double close = 6e-3;  // weights and results are rounded to 8 bits

template <typename Form, int tile_n = 16, int key_warps = 2, int stages = 2, int row_warps = 1>
double decode_error(const DecodeProblem& problem, unsigned blocks, std::uint32_t seed = 1, int splits = 1 << 20) {
  Decode<Form> of(problem);
  of.template launch<tile_n, key_warps, stages, row_warps>(blocks, seed, splits);
  CHECK(of.report == 0);
  return of.error();
}

template <CacheLayout layout, Mask mask, int head_dim, int value_dim = head_dim, typename T = kiln::bf16,
          SoftCap soft_cap = SoftCap::none>
using OfBytes = FormOfDecode<layout, mask, head_dim, value_dim, Invariant::no, soft_cap, Sinks::none, T, kiln::e4m3>;

TEST_CASE(
    "attention_decode_mma takes lengths of 0, 1, one about a tile and a block, and skewed ones, on few blocks and many") {
  const DecodeProblem problem = {
      .lengths = {0, 1, 15, 16, 17, 31, 32, 33, 200, 64, 0}, .queries = 1, .heads = 4, .key_heads = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u})
    for (const unsigned blocks : {1u, 3u, 20u, 200u}) {
      CAPTURE(blocks);
      CHECK(decode_error<FormOfDecode<CacheLayout::contiguous, Mask::causal, 64>>(problem, blocks, seed) < close);
      CHECK(decode_error<FormOfDecode<CacheLayout::paged, Mask::causal, 64>>(problem, blocks, seed) < close);
    }
}

TEST_CASE(
    "rows of a cache that indices name are its keys, in tiles of each size, of rows that copies of 16 and of 8 bytes move") {
  DecodeProblem problem = {.lengths = {0, 1, 15, 16, 17, 33, 200, 64}, .queries = 2, .heads = 4, .key_heads = 2};
  using Form = FormOfDecode<CacheLayout::indexed, Mask::causal, 64>;
  for (const unsigned blocks : {1u, 3u, 20u}) {
    CAPTURE(blocks);
    CHECK(decode_error<Form>(problem, blocks) < close);
    CHECK(decode_error<Form, 32, 2, 3, 2>(problem, blocks) < close);
    CHECK(decode_error<Form, 64, 1, 2>(problem, blocks) < close);
  }
  CHECK(decode_error<FormOfDecode<CacheLayout::indexed, Mask::none, 40, 24>>(problem, 3) < close);
  CHECK(decode_error<FormOfDecode<CacheLayout::indexed, Mask::none, 80>, 16, 2, 2, 2>(problem, 3) < close);
  CHECK(decode_error<FormOfDecode<CacheLayout::indexed, Mask::none, 8, 16>, 32, 2, 3, 4>(problem, 3) < close);
  CHECK(decode_error<OfBytes<CacheLayout::indexed, Mask::causal, 128>, 32, 2, 3>(problem, 7) < close);
  CHECK(decode_error<OfBytes<CacheLayout::indexed, Mask::causal, 72, 40>>(problem, 3) < close);
  problem.left = 20;
  CHECK(decode_error<FormOfDecode<CacheLayout::indexed, Mask::window, 64>, 32, 2, 2>(problem, 9) < close);
}

TEST_CASE("an index outside of the cache is not read, nor are indices past a sequence's keys") {
  Decode<FormOfDecode<CacheLayout::indexed, Mask::causal, 64>> of({.lengths = {60, 33}});
  const int first = of.table[0], second = of.table[1];
  of.table[0] = 1 << 29;
  of.table[1] = -(1 << 29);
  of.launch(2);  // the emulator's host would trap
  of.table[0] = first;
  of.table[1] = second;
  of.launch(2);
  CHECK(of.error() < close);
}

TEST_CASE("attention_decode_mma takes each head dimension and both types") {
  const DecodeProblem problem = {.lengths = {70, 130}, .queries = 2, .heads = 2, .key_heads = 1, .scale = 0.2f};
  CHECK(decode_error<FormOfDecode<CacheLayout::contiguous, Mask::causal, 96>>(problem, 3) < close);
  CHECK(decode_error<FormOfDecode<CacheLayout::paged, Mask::causal, 128>>(problem, 3) < close);
  CHECK(decode_error<FormOfDecode<CacheLayout::contiguous, Mask::none, 192, 128>>(problem, 3) < close);
  CHECK(decode_error<FormOfDecode<CacheLayout::paged, Mask::none, 256>>(problem, 3) < close);
  CHECK(decode_error<FormOfDecode<CacheLayout::paged, Mask::none, 40, 24>>(problem, 3) < close);
  using F16 =
      FormOfDecode<CacheLayout::paged, Mask::causal, 64, 64, Invariant::no, SoftCap::none, Sinks::none, kiln::f16>;
  CHECK(decode_error<F16>(problem, 3) < close);
}

TEST_CASE("attention_decode_mma takes keys and values of 8 bits, with their scales, beside queries of 16") {
  DecodeProblem problem = {.lengths = {0, 1, 15, 33, 130}, .queries = 2, .heads = 4, .key_heads = 2, .scale = 0.2f};
  CHECK(decode_error<OfBytes<CacheLayout::contiguous, Mask::causal, 64>>(problem, 3) < close);
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::causal, 128>, 32, 2, 3>(problem, 20, 1) < close);
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::none, 256, 256, kiln::f16>>(problem, 5, 2) < close);
  CHECK(decode_error<OfBytes<CacheLayout::contiguous, Mask::none, 192, 128>>(problem, 3) < close);
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::causal, 8>>(problem, 3) < close);
  CHECK(decode_error<OfBytes<CacheLayout::contiguous, Mask::causal, 72, 40>>(problem, 3) < close);
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::none, 64, 24, kiln::f16>, 32, 2, 3>(problem, 7) < close);
  // Halves of steps of 32 columns.
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::none, 48, 80>>(problem, 3) < close);
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::none, 80, 16, kiln::f16>, 16, 4, 2>(problem, 7) < close);
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::causal, 64, 64, kiln::bf16, SoftCap::tanh>>(problem, 3) < close);
  problem.left = 20;
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::window, 64>, 16, 2, 2>(problem, 9) < close);
  problem.heads = 32, problem.queries = 3;  // 48 rows of a key head
  CHECK(decode_error<OfBytes<CacheLayout::paged, Mask::window, 64>, 16, 2, 2, 4>(problem, 4) < close);
}

TEST_CASE("queries of 1, 4 and 8 heads of a key head fill tiles of 16 to 64 rows, and more than one tile") {
  using Form = FormOfDecode<CacheLayout::paged, Mask::causal, 64>;
  DecodeProblem problem = {.lengths = {2, 90, 40}, .page_size = 64};
  for (const int group : {1, 4, 8})
    for (const int queries : {1, 3, 16}) {
      CAPTURE(group);
      CAPTURE(queries);
      problem.heads = 2 * group;
      problem.key_heads = 2;
      problem.queries = queries;
      CHECK(decode_error<Form>(problem, 7) < close);
      CHECK(decode_error<Form, 32, 2, 3, 2>(problem, 5, 0) < close);
      CHECK(decode_error<Form, 16, 1, 4, 4>(problem, 4, 2) < close);
    }
}

TEST_CASE("tiles, groups and stages of a ring may be any") {
  using Form = FormOfDecode<CacheLayout::paged, Mask::causal, 64>;
  const DecodeProblem problem = {.lengths = {300, 5, 129}, .queries = 2, .heads = 2, .key_heads = 1, .page_size = 32};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CHECK(decode_error<Form, 64, 1, 2>(problem, 3, seed) < close);
    CHECK(decode_error<Form, 16, 8, 3>(problem, 2, seed) < close);
    CHECK(decode_error<Form, 32, 4, 6>(problem, 4, seed) < close);
    CHECK(decode_error<Form, 16, 2, 8>(problem, 6, seed, 4) < close);
  }
}

TEST_CASE("a window leaves out what lies left of it, in pages that hold NaN or are none") {
  DecodeProblem problem = {.lengths = {300, 20, 0, 65}, .queries = 3, .heads = 2, .key_heads = 1, .left = 40};
  using Paged = FormOfDecode<CacheLayout::paged, Mask::window, 64>;
  for (const int left : {0, 15, 40, 1000}) {
    problem.left = left;
    Decode<Paged> of(problem);
    for (int page = 0; page < (300 - 3 - left) / 16; ++page) of.table[static_cast<std::size_t>(page)] = -7;
    of.launch(5);
    CAPTURE(left);
    // Only now are all pages known to the reference, which skips those that no query sees too.
    CHECK(of.error() < close);
    CHECK(decode_error<FormOfDecode<CacheLayout::contiguous, Mask::window, 64>>(problem, 5) < close);
  }
}

TEST_CASE("a soft cap bends logits, a sink takes part in the sum, once however many parts there are") {
  using Form = FormOfDecode<CacheLayout::paged, Mask::causal, 64, 64, Invariant::no, SoftCap::tanh, Sinks::head>;
  const DecodeProblem problem = {.lengths = {300, 0, 1, 40}, .queries = 2, .heads = 4, .key_heads = 2};
  CHECK(decode_error<Form>(problem, 1) < close);
  CHECK(decode_error<Form>(problem, 9) < close);
}

TEST_CASE("lse may be left out") {
  Decode<FormOfDecode<CacheLayout::paged, Mask::causal, 64>> of({.lengths = {70, 200}, .heads = 2, .key_heads = 2});
  of.launch(5, 1, 1, false);
  for (int head = 0; head < 4; ++head) CHECK(std::isnan(of.lse.value(head, 0)));
  of.launch(5);
  CHECK(of.error() < close);
}

TEST_CASE("sequences past a number in device memory are neither read nor written") {
  const int sequences = 2;
  const auto check = [&]<typename Form>(Form*) {
    Decode<Form> of({.lengths = {70, 600, 40}});
    of.table[2 * static_cast<std::size_t>(of.entries + 1)] = -1;
    of.sequences = &sequences;
    of.launch(9);
    for (int column = 0; column < 64; ++column) CHECK(std::isnan(of.out.value(2, column)));
    CHECK(std::isnan(of.lse.value(2, 0)));
    Decode<Form> two({.lengths = {70, 600}});
    two.launch(9);
    for (const int sequence : {0, 1}) CHECK(of.bits(sequence) == two.bits(sequence));
  };
  check(static_cast<FormOfDecode<CacheLayout::paged, Mask::causal, 64>*>(nullptr));
  check(static_cast<FormOfDecode<CacheLayout::paged, Mask::causal, 64, 64, Invariant::yes>*>(nullptr));
}

TEST_CASE("lengths outside of the cache count as its ends and are reported, pages outside of the pool are not read") {
  using Form = FormOfDecode<CacheLayout::paged, Mask::causal, 64>;
  Decode<Form> of({.lengths = {60, 33}});
  of.problem.lengths = {61, -3};
  of.launch(2);
  CHECK((of.report >> 32) == 60);
  const auto told = static_cast<int>(of.report);
  CHECK((told == 61 || told == -3));
  of.problem.lengths = {60, 0};
  CHECK(of.error() < close);

  of.problem.lengths = {60, 33};
  of.table[0] = 1 << 29;
  of.table[1] = -(1 << 29);
  of.launch(2);  // the emulator's host would trap
  of.table[1] = of.table[0] = 0;
}

TEST_CASE("the longest sequence there is is cut into as many parts as were asked for, on a grid of more blocks") {
  Decode<FormOfDecode<CacheLayout::contiguous, Mask::causal, 64>> of(
      {.lengths = {640, 64}, .heads = 2, .key_heads = 1});
  of.launch(64, 1, 10);  // 20 blocks of 32 keys
  CHECK(of.error() < close);
  CHECK(of.cuts[0].parts == 10);
  of.launch(64);
  CHECK(of.error() < close);
  CHECK(of.cuts[0].parts == 20);
}

TEST_CASE("invariant results of a sequence have the same bits in every batch, on every grid, in each layout") {
  DecodeProblem problem = {.lengths = {700}, .queries = 2, .heads = 2, .key_heads = 1, .first_seed = 7};
  const auto bits = []<typename Form>(const DecodeProblem& given, int sequence, unsigned blocks, int splits, Form*) {
    Decode<Form> of(given);
    of.template launch<16, 2, 3>(blocks, 1, splits);
    CHECK(of.error() < close);
    return of.bits(sequence);
  };
  using Contiguous = FormOfDecode<CacheLayout::contiguous, Mask::causal, 64, 64, Invariant::yes>;
  using Paged = FormOfDecode<CacheLayout::paged, Mask::causal, 64, 64, Invariant::yes>;
  const auto alone = bits(problem, 0, 3, 99, static_cast<Contiguous*>(nullptr));
  CHECK(bits(problem, 0, 1, 99, static_cast<Contiguous*>(nullptr)) == alone);
  using Indexed = FormOfDecode<CacheLayout::indexed, Mask::causal, 64, 64, Invariant::yes>;
  CHECK(bits(problem, 0, 22, 5, static_cast<Paged*>(nullptr)) == alone);
  CHECK(bits(problem, 0, 7, 5, static_cast<Indexed*>(nullptr)) == alone);
  problem.lengths = {1100, 0, 700, 40};
  problem.first_seed = 5;
  CHECK(bits(problem, 2, 9, 99, static_cast<Contiguous*>(nullptr)) == alone);
  CHECK(bits(problem, 2, 50, 99, static_cast<Paged*>(nullptr)) == alone);

  using Free = FormOfDecode<CacheLayout::contiguous, Mask::causal, 64>;
  CHECK(bits(problem, 2, 9, 99, static_cast<Free*>(nullptr)) != alone);
}

}  // namespace
