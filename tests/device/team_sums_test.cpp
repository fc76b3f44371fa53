// Sums over the ranks of a team: all of x, or each rank's part of it.
#include <doctest/doctest.h>

#include <cmath>

#include "all_reduce/packets.cuh"
#include "all_reduce/push.cuh"
#include "all_reduce/twoshot.cuh"
#include "kernels.hpp"
#include "reduce_scatter/push.cuh"
#include "team.hpp"
#include "words.hpp"

namespace {

using kiln::team::Report;
using test::Words;

constexpr int row_words = 3, cols = 4 * row_words, chunk_words = 4;
constexpr int most_rows = 8, stride = most_rows + 1, most_chunks = most_rows * row_words / chunk_words;

enum class Op { all_reduce, packets, two_shot, reduce_scatter };
constexpr Op ops[] = {Op::all_reduce, Op::packets, Op::two_shot, Op::reduce_scatter};

/// A small multiple of 1 / 8, so that sums are exact.
float value(int launch, int rank, int part, int row, int column) {
  const unsigned hash = static_cast<unsigned>(((launch * 8 + rank) * 8 + part) * 997 + row * 31 + column) * 2654435761u;
  return static_cast<float>(static_cast<int>(hash >> 20 & 31) - 16) / 8;
}

/// Rank r has `rows[r]` rows. `counted`: ranks know each other's.
struct Sums {
  Sums(Op its_op, std::vector<int> rows_of, int launches, bool counts_given)
      : op(its_op), rows(std::move(rows_of)), counted(counts_given), team(world(), workspace_bytes()) {
    for (int launch = 0; launch < launches; ++launch) {
      for (int rank = 0; rank < world(); ++rank) {
        const int parts = op == Op::reduce_scatter ? world() : 1;
        const auto number = [&](int i) {
          return value(launch, rank, i / (stride * cols), i / cols % stride, i % cols);
        };
        calls.push_back({Words::of(parts * stride * row_words, number), Words(stride * row_words)});
      }
    }
  }

  struct Call {
    Words x, y;
  };

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] std::int64_t workspace_bytes() const {
    const int slots = op == Op::two_shot ? 2 * rounds() : most_chunks;
    return static_cast<std::int64_t>(world()) * slots * chunk_words * 16;
  }
  [[nodiscard]] int rounds() const { return (most_chunks + world() - 1) / world(); }
  Call& call(int launch, int rank) { return calls[static_cast<std::size_t>(launch * world() + rank)]; }
  [[nodiscard]] int rows_of(int rank) const { return rows[static_cast<std::size_t>(rank)]; }

  void run(const test::TeamLaunch& how, int launches = 1, int pushers = 2) {
    test::with_world(rows.size(), [&](auto world) {
      team.run(how, launches, [&](int launch, int rank) {
        Call& of = call(launch, rank);
        if (op == Op::all_reduce) {
          kiln::all_reduce_push<float, world, 32>(of.x.data(), of.y.data(), test::length(rows_of(rank)), row_words,
                                                  most_rows, chunk_words, most_chunks, pushers, team.workspace(),
                                                  team.argument(rank));
        } else if (op == Op::packets) {
          kiln::all_reduce_packets<float, world, 32, 1>(of.x.data(), of.y.data(), test::length(rows_of(rank)),
                                                        row_words, team.argument(rank));
        } else if (op == Op::two_shot) {
          kiln::all_reduce_two_shot<float, world, 32>(of.x.data(), of.y.data(), test::length(rows_of(rank)), row_words,
                                                      chunk_words, rounds(), pushers, team.workspace(),
                                                      team.argument(rank));
        } else {
          kiln::reduce_scatter_push<float, world, 32>(
              of.x.data(), counted ? rows.data() : nullptr, of.y.data(), test::length(rows_of(rank)), stride, row_words,
              most_rows, chunk_words, most_chunks, pushers, team.workspace(), team.argument(rank));
        }
      });
    });
  }

  /// Whether `rank` sent row `row` of the sum that `to` makes.
  [[nodiscard]] bool sent(int rank, int to, int row) const {
    const bool all = op == Op::reduce_scatter && counted;
    return row < rows_of(all ? to : rank);
  }
  bool right(int launch, int rank) {
    const Words& y = call(launch, rank).y;
    for (int i = 0; i < stride * cols; ++i) {
      const int row = i / cols;
      float sum = 0;
      for (int from = 0; from < world(); ++from)
        sum += sent(from, rank, row) ? value(launch, from, op == Op::reduce_scatter ? rank : 0, row, i % cols) : 0;
      if (row < rows_of(rank) ? y.number(i) != sum : !std::isnan(y.number(i))) return false;
    }
    return y.margins_untouched();
  }
  /// So that NaN in outputs shows that it was written.
  void clear_outputs() {
    for (Call& each : calls) std::fill_n(each.y.data(), stride * row_words, uint4{});
  }
  bool nan_written(int launch, int rank) {
    for (int i = 0; i < stride * cols; ++i) {
      if (std::isnan(call(launch, rank).y.number(i)) != (i / cols < rows_of(rank))) return false;
    }
    return call(launch, rank).y.margins_untouched();
  }

  Op op;
  std::vector<int> rows;
  bool counted;
  test::Team team;
  std::vector<Call> calls;
};

void check_launches(Op op, const std::vector<int>& rows, bool counted) {
  constexpr int launches = 5;
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    CAPTURE(rows.size());
    Sums sums(op, rows, launches, counted);
    sums.run({.blocks = 4, .seed = seed}, launches);
    for (int rank = 0; rank < sums.world(); ++rank) {
      for (int launch = 0; launch < launches; ++launch) CHECK(sums.right(launch, rank));
      CHECK(sums.team.idle(rank, launches));
      CHECK(sums.team.packets_are_clear(rank));
      CHECK(sums.team.report(rank).state == Report::none);
    }
  }
}

TEST_CASE("an all-reduce adds up every rank's rows, launch after launch on the same memory") {
  for (const std::vector<int>& rows : test::team_rows) {
    check_launches(Op::all_reduce, rows, false);
    check_launches(Op::packets, rows, false);
    check_launches(Op::two_shot, rows, false);
  }
}

TEST_CASE("a reduce-scatter adds up the parts for each rank, as many rows as are sent or as counts say") {
  for (const std::vector<int>& rows : test::team_rows) {
    check_launches(Op::reduce_scatter, rows, true);
    check_launches(Op::reduce_scatter, rows, false);
  }
}

TEST_CASE("a reduce-scatter may write to its own part of x") {
  Sums sums(Op::reduce_scatter, {8, 8, 8}, 1, false);
  sums.team.run({.blocks = 4, .seed = 1}, 1, [&](int, int rank) {
    uint4* x = sums.call(0, rank).x.data();
    kiln::reduce_scatter_push<float, 3, 32>(x, nullptr, x + rank * stride * row_words, test::length(8), stride,
                                            row_words, most_rows, chunk_words, most_chunks, 2, sums.team.workspace(),
                                            sums.team.argument(rank));
  });
  for (int rank = 0; rank < 3; ++rank) {
    Sums::Call& call = sums.call(0, rank);
    std::copy_n(call.x.data() + rank * stride * row_words, 8 * row_words, call.y.data());
    CHECK(sums.right(0, rank));
  }
}

TEST_CASE("sums are rounded once to small floats") {
  test::Team team(2, 64 * 16);
  test::Matrix<kiln::bf16> x(2, 16, 16), y(2, 16, 16);
  for (int rank = 0; rank < 2; ++rank) {
    for (int column = 0; column < 16; ++column)
      x.at(rank, column) = kiln::from_float<kiln::bf16>(rank == 0 ? 256.0f : 1.0f + static_cast<float>(column) / 8);
  }
  team.run({.blocks = 1}, 1, [&](int, int rank) {
    kiln::all_reduce_push<kiln::bf16, 2, 32>(reinterpret_cast<const uint4*>(&x.at(rank, 0)),
                                             reinterpret_cast<uint4*>(&y.at(rank, 0)), test::length(1), 2, 1, 2, 1, 1,
                                             team.workspace(), team.argument(rank));
  });
  for (int column = 0; column < 16; ++column) {  // floats of 8 bits are 2 apart there; a tie goes to even
    const double sum = 257 + column / 8.0, right = sum <= 257 ? 256 : sum < 259 ? 258 : 260;
    CHECK(y.value(0, column) == right);
    CHECK(y.value(1, column) == right);
  }
}

TEST_CASE("sums need no two blocks of a rank to run at once") {
  for (const Op op : ops) {
    for (const std::uint32_t seed : test::seeds) {
      Sums sums(op, {8, 3, 8}, 2, true);
      sums.run({.blocks = 6, .seed = seed, .resident = 1}, 2, 3);
      for (int rank = 0; rank < 3; ++rank) CHECK((sums.right(0, rank) && sums.right(1, rank)));
    }
  }
}

TEST_CASE("sums without a rank end in time, tell which, and are NaN") {
  for (const Op op : ops) {
    for (const std::uint32_t seed : test::seeds) {
      Sums sums(op, {8, 8, 8}, 1, false);
      sums.clear_outputs();
      sums.team.timeout_ns = 100'000;
      sums.run({.blocks = 4, .seed = seed, .absent = 2});
      for (const int rank : {0, 1}) {
        CHECK(sums.team.reports(rank, Report::timed_out, 2));
        CHECK(sums.nan_written(0, rank));
        CHECK(sums.team.idle(rank, 1));
      }
    }
  }
}

TEST_CASE("the host ends sums that wait, and ranks of different plans find out") {
  for (const Op op : ops) {
    Sums stopped(op, {8, 8, 8}, 1, false);
    stopped.clear_outputs();
    stopped.team.report(0).abort = 1;
    stopped.team.report(1).abort = 1;
    stopped.run({.blocks = 4, .seed = 3, .absent = 2});
    Sums differing(op, {8, 8}, 1, false);
    differing.clear_outputs();
    differing.team.tag_of = [](int rank) { return 7u + static_cast<unsigned>(rank); };
    differing.run({.blocks = 4, .seed = 2});
    for (const int rank : {0, 1}) {
      CHECK(stopped.team.reports(rank, Report::aborted, 2));
      CHECK(stopped.nan_written(0, rank));
      CHECK(differing.team.reports(rank, Report::other_plan, 1 - rank));
      CHECK(differing.nan_written(0, rank));
    }
  }
}

}  // namespace
