// all_reduce in two exchanges, beside the kernel with one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "all_reduce/push.cuh"
#include "all_reduce/twoshot.cuh"
#include "kernels.hpp"
#include "matrices.hpp"
#include "team.hpp"

namespace {

using kiln::bf16;
using kiln::team::Report;
using test::Matrix;

constexpr int cols = 24, row_words = cols * 2 / 16;

/// How the bucket's words are cut.
struct Cut {
  int most_rows, chunk_words;
  [[nodiscard]] int chunks() const { return (most_rows * row_words + chunk_words - 1) / chunk_words; }
  [[nodiscard]] int rounds(int world) const { return (chunks() + world - 1) / world; }
};

/// Numbers whose sums in float depend on the order: large ones cancel often, after small ones were rounded.
Matrix<bf16> random_part(int rows, std::uint32_t seed) {
  std::minstd_rand random(seed);
  Matrix<bf16> made(rows, cols, cols);
  for (int i = 0; i < rows * cols; ++i) {
    const auto bits = static_cast<unsigned>(random() >> 8);
    const float small = static_cast<float>(bits & 127) + 1, large = static_cast<float>(1 << 24);
    made.at(i / cols, i % cols) = kiln::from_float<bf16>((bits & 256) != 0   ? small
                                                         : (bits & 512) != 0 ? large
                                                                             : -large);
  }
  return made;
}

struct Sums {
  Sums(std::vector<int> rows_of, Cut how)
      : rows(std::move(rows_of)),
        cut(how),
        one_exchange(world(), world() * cut.chunks() * cut.chunk_words * 16),
        team(world(), 2 * world() * cut.rounds(world()) * cut.chunk_words * 16) {
    for (int rank = 0; rank < world(); ++rank) {
      parts.push_back({random_part(most_rows(), static_cast<std::uint32_t>(rank + 1)),
                       Matrix<bf16>(most_rows(), cols, cols), Matrix<bf16>(most_rows(), cols, cols)});
    }
  }

  struct Part {
    Matrix<bf16> x, y, expected;
  };

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] int most_rows() const { return cut.most_rows; }
  Part& part(int rank) { return parts[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int rows_of(int rank) const { return rows[static_cast<std::size_t>(rank)]; }
  static uint4* words(Matrix<bf16>& of) { return reinterpret_cast<uint4*>(of.data()); }

  void run(const test::TeamLaunch& how, int pushers, int launches = 1) {
    test::with_world(rows.size(), [&](auto world) {
      team.run(how, launches, [&](int, int rank) {
        kiln::all_reduce_two_shot<bf16, world, 32>(words(part(rank).x), words(part(rank).y),
                                                   test::length(rows_of(rank)), row_words, cut.chunk_words,
                                                   cut.rounds(world), pushers, team.workspace(), team.argument(rank));
      });
    });
  }
  void run_one_exchange() {
    test::with_world(rows.size(), [&](auto world) {
      one_exchange.run({.blocks = 2, .seed = 1}, 1, [&](int, int rank) {
        kiln::all_reduce_push<bf16, world, 32>(words(part(rank).x), words(part(rank).expected),
                                               test::length(rows_of(rank)), row_words, most_rows(), cut.chunk_words,
                                               cut.chunks(), 1, one_exchange.workspace(), one_exchange.argument(rank));
      });
    });
  }
  /// Whether `rank` has the bits of the kernel with one exchange, and nothing past its rows is written.
  bool agrees(int rank) {
    Part& of = part(rank);
    return std::memcmp(of.y.data(), of.expected.data(), sizeof(bf16) * cols * static_cast<std::size_t>(most_rows())) ==
               0 &&
           of.y.margins_untouched();
  }

  /// Whether its rows are the sums in the order of the ranks, in float and rounded once.
  bool right(int rank) {
    for (int i = 0; i < rows_of(rank) * cols; ++i) {
      float sum = 0;
      for (int from = 0; from < world(); ++from)
        sum += i / cols < rows_of(from) ? static_cast<float>(part(from).x.value(i / cols, i % cols)) : 0;
      const bf16 rounded = kiln::from_float<bf16>(sum);
      if (std::memcmp(&part(rank).y.at(i / cols, i % cols), &rounded, sizeof rounded) != 0) return false;
    }
    return true;
  }
  /// Whether `rank` has told a peer that a sum is there, in the first launch.
  bool sent_sums(int rank) {
    const int rounds = cut.rounds(world());
    for (int to = 0; to < world(); ++to) {
      const auto* sums_of_it = team.control(to).flags[rank] + kiln::team::flags_per_epoch + rounds;
      if (std::any_of(sums_of_it, sums_of_it + rounds, [](unsigned long long flag) { return flag != 0; })) return true;
    }
    return false;
  }

  std::vector<int> rows;
  Cut cut;
  test::Team one_exchange, team;
  std::vector<Part> parts;
};

void check(const std::vector<int>& rows, Cut cut, const test::TeamLaunch& how, int pushers, int launches = 1) {
  CAPTURE(rows.size());
  CAPTURE(cut.chunk_words);
  CAPTURE(how.seed);
  Sums sums(rows, cut);
  sums.run_one_exchange();
  sums.run(how, pushers, launches);
  CHECK(sums.sent_sums(0) == (sums.world() > 1));
  for (int rank = 0; rank < sums.world(); ++rank) {
    CAPTURE(rank);
    CHECK(sums.agrees(rank));
    CHECK(sums.right(rank));
    CHECK(sums.team.idle(rank, static_cast<unsigned>(launches)));
    CHECK(sums.team.report(rank).state == Report::none);
  }
}

TEST_CASE("two exchanges give the bits of one, however the words are cut") {
  for (const std::uint32_t seed : test::seeds) {
    for (const int chunk_words : {1, 4, 7, 33, 200}) {  // from many rounds to one chunk, of rank 0
      check({64, 64, 64, 64}, {64, chunk_words}, {.blocks = 3, .seed = seed}, 2);
      check({64, 33, 0}, {64, chunk_words}, {.blocks = 3, .seed = seed}, 3);
    }
    check({1}, {8, 4}, {.blocks = 2, .seed = seed}, 1);
    check({8, 5}, {8, 4}, {.blocks = 2, .seed = seed}, 1);
    check({16, 16, 16, 16, 16, 16, 16, 16}, {16, 2}, {.blocks = 2, .seed = seed}, 2, 2);
  }
}

TEST_CASE("two exchanges end where no block runs beside another, with any number that push") {
  for (const int pushers : {1, 3, 6}) {
    check({8, 0, 3, 8}, {8, 2}, {.blocks = 6, .seed = 5, .resident = 1}, pushers, 3);
    check({8, 7, 3}, {8, 2}, {.blocks = 6, .seed = 6, .resident = 2}, pushers, 3);
  }
}

TEST_CASE("an owner without rows adds up what the others have, and launches take lengths in turns") {
  Sums sums({0, 0, 6}, {8, 1});
  for (const std::vector<int>& rows : std::vector<std::vector<int>>{{0, 0, 6}, {8, 0, 0}, {0, 0, 0}, {3, 8, 1}}) {
    sums.rows = rows;
    for (Sums::Part& each : sums.parts) each.y = each.expected = Matrix<bf16>(8, cols, cols);
    sums.run_one_exchange();
    sums.run({.blocks = 3, .seed = 4}, 2);
    for (int rank = 0; rank < 3; ++rank) CHECK(sums.agrees(rank));
  }
}

TEST_CASE("a rank that has failed sends no sums, later launches do nothing, and a reset serves again") {
  Sums sums({8, 8, 8, 8}, {8, 2});
  sums.run_one_exchange();
  sums.team.timeout_ns = 100'000;
  sums.run({.blocks = 3, .seed = 2, .absent = 3}, 2);
  sums.team.timeout_ns = test::Team::no_timeout;
  sums.run({.blocks = 3, .seed = 3, .absent = 3}, 2);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(sums.team.reports(rank, Report::timed_out, 3));
    CHECK(sums.team.idle(rank, 2));
    CHECK_FALSE(sums.sent_sums(rank));
    for (int row = 0; row < 8; ++row) CHECK(std::isnan(sums.part(rank).y.value(row, row)));
  }
  sums.team.reset();
  sums.run({.blocks = 3, .seed = 4}, 2);
  for (int rank = 0; rank < 4; ++rank) CHECK(sums.agrees(rank));
}

}  // namespace
