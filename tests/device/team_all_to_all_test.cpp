#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "all_to_all/push.cuh"
#include "kernels.hpp"
#include "team.hpp"
#include "words.hpp"

namespace {

using kiln::Direction;
using kiln::team::Report;
using test::Words;

/// Blocks have 32 threads.
struct Sizes {
  int row_words = 3, chunk_words = 4, most_rows = 8, rank_stride = most_rows + 1;
  int most_chunks = (most_rows * row_words + chunk_words - 1) / chunk_words;
};

/// Rank r has `rows[r]` rows. The tensor of rank 3 has all heads of them, that of rank 4 all ranks' rows of some heads.
struct Exchange : Sizes {
  Exchange(Direction its_direction, std::vector<int> rows_of, int launches, Sizes sizes = {})
      : Sizes(sizes), direction(its_direction), rows(std::move(rows_of)), team(world(), workspace_bytes()) {
    for (int launch = 0; launch < launches; ++launch) {
      for (int rank = 0; rank < world(); ++rank)
        calls.push_back(
            {Words::numbered(words(), launch * 8 + rank), Words(words()), std::vector<int>(rows.size(), 77)});
    }
  }

  struct Call {
    Words x, y;
    std::vector<int> row_counts;
  };

  [[nodiscard]] bool scatters() const { return direction == Direction::scatter_heads; }
  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] int words() const { return world() * rank_stride * row_words; }
  [[nodiscard]] std::int64_t workspace_bytes() const {
    return static_cast<std::int64_t>(world()) * most_chunks * chunk_words * 16;
  }
  [[nodiscard]] int rows_of(int rank) const { return rows[static_cast<std::size_t>(rank)]; }
  Call& call(int launch, int rank) { return calls[static_cast<std::size_t>(launch * world() + rank)]; }

  template <Direction which>
  void run_to(const test::TeamLaunch& how, int launches, int pushers) {
    test::with_world(rows.size(), [&](auto world) {
      team.run(how, launches, [&](int launch, int rank) {
        Call& of = call(launch, rank);
        kiln::all_to_all_push<world, 32, which>(of.x.data(), which == Direction::gather_heads ? rows.data() : nullptr,
                                                of.y.data(), of.row_counts.data(), test::length(rows_of(rank)),
                                                rank_stride, row_words, most_rows, chunk_words, most_chunks, pushers,
                                                team.workspace(), team.argument(rank));
      });
    });
  }
  void run(const test::TeamLaunch& how, int launches = 1, int pushers = 2) {
    if (scatters()) return run_to<Direction::scatter_heads>(how, launches, pushers);
    run_to<Direction::gather_heads>(how, launches, pushers);
  }

  /// Where word `i` of a row of the heads of rank `heads` lies, in the tensors of rank 3 and 4 of rank `on`.
  [[nodiscard]] int by_rows(int heads, int row, int i) const { return (row * world() + heads) * row_words + i; }
  [[nodiscard]] int by_heads(int of, int row, int i) const { return (of * rank_stride + row) * row_words + i; }

  /// Of y's words, by number: what rank `from` sends to `rank`. Returns whether f(y's word, x's word of `from`, row) is true for all.
  template <typename Check>
  bool all_words(int launch, int rank, int from, int count, Check check) {
    const Words &y = call(launch, rank).y, &x = call(launch, from).x;
    for (int row = 0; row < count; ++row) {
      for (int i = 0; i < row_words; ++i) {
        const int to = scatters() ? by_heads(from, row, i) : by_rows(from, row, i);
        const int at = scatters() ? by_rows(rank, row, i) : by_heads(rank, row, i);
        if (!check(y[to], x[at])) return false;
      }
    }
    return true;
  }
  /// Rows that pass from one rank to another.
  [[nodiscard]] int rows_between(int from, int to) const { return rows_of(scatters() ? from : to); }

  bool came(int launch, int rank, int from) {
    const bool told = !scatters() || call(launch, rank).row_counts[static_cast<std::size_t>(from)] == rows_of(from);
    return told && all_words(launch, rank, from, rows_between(from, rank), test::equal);
  }
  bool nothing_came(int launch, int rank, int from) {
    const bool told = !scatters() || call(launch, rank).row_counts[static_cast<std::size_t>(from)] == -1;
    return told && all_words(launch, rank, from, scatters() ? most_rows : rows_of(rank),
                             [](const uint4& got, const uint4&) { return test::poisoned(got); });
  }
  /// All that came to `rank`, and nothing beside it.
  bool right(int launch, int rank) {
    int written = 0;
    for (int from = 0; from < world(); ++from) {
      if (!came(launch, rank, from)) return false;
      written += rows_between(from, rank) * row_words;
    }
    const Words& y = call(launch, rank).y;
    for (int i = 0; i < words(); ++i) written -= test::poisoned(y[i]) ? 0 : 1;
    return written == 0 && y.margins_untouched();
  }
  /// So that NaN in outputs shows that it was written.
  void clear_outputs() {
    for (Call& each : calls) std::fill_n(each.y.data(), words(), uint4{});
  }

  Direction direction;
  std::vector<int> rows;
  test::Team team;
  std::vector<Call> calls;
};

constexpr Direction directions[] = {Direction::scatter_heads, Direction::gather_heads};

TEST_CASE("an all-to-all turns rows of all heads into all rows of some heads and back, launch after launch") {
  constexpr int launches = 5;
  for (const Direction direction : directions) {
    for (const std::vector<int>& rows : test::team_rows) {
      for (const std::uint32_t seed : test::seeds) {
        CAPTURE(seed);
        CAPTURE(rows.size());
        Exchange exchange(direction, rows, launches);
        exchange.run({.blocks = 4, .seed = seed}, launches);
        for (int rank = 0; rank < exchange.world(); ++rank) {
          for (int launch = 0; launch < launches; ++launch) CHECK(exchange.right(launch, rank));
          CHECK(exchange.team.idle(rank, launches));
          CHECK(exchange.team.report(rank).state == Report::none);
        }
      }
    }
  }
}

TEST_CASE("an all-to-all copies many words a thread, of rows that are shorter and longer than a block") {
  for (const Direction direction : directions) {
    for (const int row_words : {3, 31, 32, 33, 100}) {
      const int most_rows = 1500 / row_words;
      CAPTURE(row_words);
      for (const std::vector<int>& rows : {std::vector{most_rows, most_rows / 2 + 1, 1}, {most_rows}}) {
        Exchange exchange(direction, rows, 2, {row_words, 1100, most_rows});
        exchange.run({.blocks = 3, .seed = 2}, 2, 1);
        for (int rank = 0; rank < exchange.world(); ++rank) CHECK((exchange.right(0, rank) && exchange.right(1, rank)));
      }
    }
  }
}

TEST_CASE("an all-to-all needs no two blocks of a rank to run at once") {
  for (const Direction direction : directions) {
    for (const std::uint32_t seed : test::seeds) {
      Exchange exchange(direction, {8, 3, 8}, 2);
      exchange.run({.blocks = 6, .seed = seed, .resident = 1}, 2, 3);
      for (int rank = 0; rank < 3; ++rank) CHECK((exchange.right(0, rank) && exchange.right(1, rank)));
    }
  }
}

TEST_CASE("an all-to-all without a rank ends in time, tells which, and gives NaN in its place") {
  for (const Direction direction : directions) {
    for (const std::uint32_t seed : test::seeds) {
      Exchange exchange(direction, {8, 4, 7}, 1);
      exchange.clear_outputs();
      exchange.team.timeout_ns = 100'000;
      exchange.run({.blocks = 4, .seed = seed, .absent = 0});
      for (const int rank : {1, 2}) {
        CHECK(exchange.team.reports(rank, Report::timed_out, 0));
        CHECK(exchange.came(0, rank, rank));
        CHECK(exchange.nothing_came(0, rank, 0));
        CHECK(exchange.team.idle(rank, 1));
      }
    }
  }
}

TEST_CASE("after a failure an all-to-all gives NaN for a rank's own rows too") {
  for (const Direction direction : directions) {
    Exchange exchange(direction, {8, 4}, 1);
    exchange.clear_outputs();
    exchange.team.control(0).failed = 1;
    exchange.team.timeout_ns = 100'000;
    exchange.run({.blocks = 4, .seed = 1});
    for (const int from : {0, 1})
      CHECK(exchange.all_words(0, 0, from, exchange.rows_between(from, 0),
                               [](auto& got, auto&) { return test::poisoned(got); }));
    CHECK(exchange.nothing_came(0, 1, 0));
    CHECK(exchange.team.report(1).state == Report::timed_out);
  }
}

TEST_CASE("the host ends an all-to-all that waits, and ranks of different plans find out") {
  for (const Direction direction : directions) {
    Exchange stopped(direction, {8, 4, 7}, 1);
    stopped.clear_outputs();
    for (const int rank : {1, 2}) stopped.team.report(rank).abort = 1;
    stopped.run({.blocks = 4, .seed = 3, .absent = 0});
    for (const int rank : {1, 2}) {
      CHECK(stopped.team.reports(rank, Report::aborted, 0));
      CHECK(stopped.nothing_came(0, rank, 0));
    }
    Exchange differing(direction, {8, 4}, 1);
    differing.clear_outputs();
    differing.team.tag_of = [](int rank) { return 7u + static_cast<unsigned>(rank); };
    differing.run({.blocks = 4, .seed = 2});
    for (const int rank : {0, 1}) {
      CHECK(differing.team.reports(rank, Report::other_plan, 1 - rank));
      CHECK(differing.nothing_came(0, rank, 1 - rank));
    }
  }
}

}  // namespace
