// all_reduce in words that tell by themselves that they came.
#include <doctest/doctest.h>

#include <cmath>

#include "all_reduce/packets.cuh"
#include "all_reduce/push.cuh"
#include "kernels.hpp"
#include "matrices.hpp"
#include "team.hpp"

namespace {

using kiln::bf16;
using kiln::team::Report;
using test::Matrix;

constexpr int cols = 24, row_words = cols * 2 / 16, most_rows = 64, words_of_thread = 2;
constexpr unsigned blocks = most_rows * row_words / (32 * words_of_thread);

uint4* words(Matrix<bf16>& of) { return reinterpret_cast<uint4*>(of.data()); }

struct Part {
  Matrix<bf16> x = Matrix<bf16>(most_rows, cols, cols), y = x, expected = x;
};

/// Two numbers of three are beside a NaN of all ones, of which some make whole words.
Matrix<bf16> part_with_nan(std::uint32_t seed) {
  Matrix<bf16> made = Matrix<bf16>::random(most_rows, cols, cols, seed);
  for (int i = 0; i < most_rows * cols; ++i) {
    if (i % 3 == 0 || i % 64 < 16) made.at(i / cols, i % cols).bits = 0xffff;
  }
  return made;
}

struct Sums {
  explicit Sums(std::vector<int> rows_of)
      : rows(std::move(rows_of)), one_exchange(world(), world() * most_rows * row_words * 16), team(world(), 256) {
    for (int rank = 0; rank < world(); ++rank)
      parts.emplace_back().x = Matrix<bf16>::random(most_rows, cols, cols, static_cast<std::uint32_t>(rank + 1));
  }

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  Part& part(int rank) { return parts[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] kiln::axis_length length(int rank) const { return test::length(rows[static_cast<std::size_t>(rank)]); }

  void run(test::TeamLaunch how, int launches = 1) {
    how.blocks = blocks;
    test::with_world(rows.size(), [&](auto world) {
      team.run(how, launches, [&](int, int rank) {
        kiln::all_reduce_packets<bf16, world, 32, words_of_thread>(words(part(rank).x), words(part(rank).y),
                                                                   length(rank), row_words, team.argument(rank));
      });
    });
  }
  void run_with_flags() {
    test::with_world(rows.size(), [&](auto world) {
      one_exchange.run({.blocks = 2, .seed = 1}, 1, [&](int, int rank) {
        kiln::all_reduce_push<bf16, world, 32>(words(part(rank).x), words(part(rank).expected), length(rank), row_words,
                                               most_rows, 8, most_rows * row_words / 8, 1, one_exchange.workspace(),
                                               one_exchange.argument(rank));
      });
    });
  }
  /// Whether `rank` has the bits of the kernel with flags, and nothing past its rows is written. The host, unlike a GPU, has many NaN.
  bool agrees(int rank) {
    Part& of = part(rank);
    for (int i = 0; i < most_rows * cols; ++i) {
      const bf16 &y = of.y.at(i / cols, i % cols), &expected = of.expected.at(i / cols, i % cols);
      if (y.bits != expected.bits && !(std::isnan(kiln::to_float(y)) && std::isnan(kiln::to_float(expected))))
        return false;
    }
    return of.y.margins_untouched();
  }
  void check(unsigned launches) {
    for (int rank = 0; rank < world(); ++rank) {
      CAPTURE(rank);
      CHECK(agrees(rank));
      CHECK(team.idle(rank, launches));
      CHECK(team.packets_are_clear(rank));
      CHECK(team.report(rank).state == Report::none);
    }
  }

  std::vector<int> rows;
  test::Team one_exchange, team;
  std::vector<Part> parts;
};

TEST_CASE("packets give the bits of words with flags, and leave zeros, whatever rows each rank has") {
  for (const std::uint32_t seed : test::seeds) {
    for (const std::vector<int>& rows : std::vector<std::vector<int>>{
             {64}, {64, 64}, {33, 64}, {0, 1}, {64, 0, 41}, {5, 64, 0, 63}, {64, 1, 0, 8, 22, 64, 43, 5}}) {
      CAPTURE(rows.size());
      CAPTURE(seed);
      Sums sums(rows);
      sums.run_with_flags();
      sums.run({.seed = seed}, 3);
      sums.check(3);
    }
  }
}

TEST_CASE("a word of a NaN that is all ones travels too") {
  for (const std::uint32_t seed : test::seeds) {
    Sums sums({64, 64});
    for (Part& each : sums.parts) each.x = part_with_nan(seed + 7);
    sums.run_with_flags();
    sums.run({.seed = seed}, 2);
    sums.check(2);
  }
}

TEST_CASE("packets need no two blocks of a rank to run at once") {
  for (const std::uint32_t seed : test::seeds) {
    Sums sums({64, 17, 64});
    sums.run_with_flags();
    sums.run({.seed = seed, .resident = 1}, 4);
    sums.check(4);
  }
}

TEST_CASE("launches take lengths in turns") {
  Sums sums({0, 0, 64});
  unsigned launches = 0;
  for (const std::vector<int>& rows : std::vector<std::vector<int>>{{0, 0, 64}, {64, 0, 0}, {0, 0, 0}, {33, 64, 1}}) {
    sums.rows = rows;
    for (Part& each : sums.parts) each.y = each.expected = Matrix<bf16>(most_rows, cols, cols);
    sums.run_with_flags();
    sums.run({.seed = 4}, 3);
    sums.check(launches += 3);
  }
}

TEST_CASE("a rank whose flag comes and whose words do not is told of, and a reset serves again") {
  for (const std::uint32_t seed : test::seeds) {
    Sums sums({64, 64, 64});
    sums.run_with_flags();
    sums.team.timeout_ns = 100'000;
    for (int to : {0, 1})
      sums.team.control(to).flags[2][kiln::team::flags_per_epoch] = (1ull << 16 | 0x1234) << 24 | 64;
    sums.run({.seed = seed, .absent = 2}, 2);
    for (const int rank : {0, 1}) {
      CHECK(sums.team.reports(rank, Report::timed_out, 2));
      for (int row = 0; row < most_rows; ++row) CHECK(std::isnan(sums.part(rank).y.value(row, row % cols)));
    }
    sums.team.timeout_ns = test::Team::no_timeout;
    sums.team.reset();
    sums.run({.seed = seed}, 2);
    sums.check(2);
  }
}

}  // namespace
