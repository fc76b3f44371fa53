#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "all_gather/push.cuh"
#include "kernels.hpp"
#include "team.hpp"
#include "words.hpp"

namespace {

using kiln::team::Report;
using test::Words;

constexpr int row_words = 3, chunk_words = 4, most_rows = 8, most_chunks = most_rows * row_words / chunk_words;

/// What each rank gives and gets in each of several launches. Rank r gives `rows[r]` rows.
struct Gather {
  Gather(std::vector<int> rows_of, int launches) : rows(std::move(rows_of)), team(world(), workspace_bytes()) {
    for (int launch = 0; launch < launches; ++launch) {
      for (int rank = 0; rank < world(); ++rank)
        calls.push_back({Words::numbered(most_rows * row_words, launch * 8 + rank),
                         Words(world() * rank_stride * row_words), std::vector<int>(rows.size(), 77)});
    }
  }

  struct Call {
    Words x, y;
    std::vector<int> counts;
  };

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] std::int64_t workspace_bytes() const {
    return static_cast<std::int64_t>(world()) * most_chunks * chunk_words * 16;
  }
  Call& call(int launch, int rank) { return calls[static_cast<std::size_t>(launch * world() + rank)]; }

  template <int World>
  void run_with(const test::TeamLaunch& how, int launches, int pushers) {
    team.run(how, launches, [&](int launch, int rank) {
      Call& to = call(first_launch + launch, rank);
      kiln::all_gather_push<World, 32>(
          to.x.data(), to.y.data(), to.counts.data(), test::length(rows[static_cast<std::size_t>(rank)]), rank_stride,
          row_words, most_rows, chunk_words, most_chunks, pushers, team.workspace(), team.argument(rank));
    });
  }
  void run(const test::TeamLaunch& how, int launches = 1, int pushers = 2) {
    test::with_world(rows.size(), [&](auto world) { run_with<world>(how, launches, pushers); });
  }

  /// Whether `of`'s rows came to `rank` whole, and nothing else was written beside them.
  bool came(int launch, int rank, int of) { return came(launch, rank, of, launch); }
  /// As `of` gave them in its launch `given`.
  bool came(int launch, int rank, int of, int given) {
    const Words& y = call(launch, rank).y;
    const Words& x = call(given, of).x;
    const int words = rows[static_cast<std::size_t>(of)] * row_words;
    for (int i = 0; i < rank_stride * row_words; ++i) {
      const uint4 got = y[of * rank_stride * row_words + i];
      if (i < words ? !test::equal(got, x[i]) : !untouched(got)) return false;
    }
    return y.margins_untouched() && call(launch, rank).counts[static_cast<std::size_t>(of)] == words / row_words;
  }
  bool all_came(int launch, int rank) {
    for (int of = 0; of < world(); ++of) {
      if (!came(launch, rank, of)) return false;
    }
    return true;
  }
  static bool untouched(const uint4& word) { return test::poisoned(word) || test::equal(word, uint4{}); }

  /// So that NaN in outputs shows that it was written.
  void clear_outputs() {
    for (Call& each : calls) std::fill_n(each.y.data(), world() * rank_stride * row_words, uint4{});
  }
  /// After clear_outputs(): whether NaN stands for the rows of `of`, as many as it may have had, and -1 for their number.
  bool nothing_came(int launch, int rank, int of) {
    const Words& y = call(launch, rank).y;
    const int written = (of == rank ? rows[static_cast<std::size_t>(rank)] : most_rows) * row_words;
    for (int i = 0; i < rank_stride * row_words; ++i) {
      if (test::poisoned(y[of * rank_stride * row_words + i]) != (i < written)) return false;
    }
    return y.margins_untouched() && call(launch, rank).counts[static_cast<std::size_t>(of)] == -1;
  }

  int first_launch = 0;  // of the next run
  static constexpr int rank_stride = most_rows + 1;
  std::vector<int> rows;
  test::Team team;
  std::vector<Call> calls;
};

TEST_CASE("an all-gather brings every rank's rows to all, launch after launch on the same memory") {
  constexpr int launches = 6;
  for (const std::uint32_t seed : test::seeds) {
    for (const std::vector<int>& rows : test::team_rows) {
      CAPTURE(seed);
      CAPTURE(rows.size());
      Gather gather(rows, launches);
      gather.run({.blocks = 4, .seed = seed}, launches);
      for (int rank = 0; rank < gather.world(); ++rank) {
        for (int launch = 0; launch < launches; ++launch) CHECK(gather.all_came(launch, rank));
        CHECK(gather.team.idle(rank, launches));
        CHECK(gather.team.report(rank).state == Report::none);
      }
    }
  }
}

TEST_CASE("an all-gather needs no two blocks of a rank to run at once") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 3, 8}, 2);
    gather.run({.blocks = 6, .seed = seed, .resident = 1}, 2, 3);
    for (int rank = 0; rank < gather.world(); ++rank) CHECK((gather.all_came(0, rank) && gather.all_came(1, rank)));
  }
}

TEST_CASE("an all-gather's epoch goes on from 0 after the last of 24 bits") {
  Gather gather({8, 5}, 5);
  for (int rank = 0; rank < 2; ++rank) gather.team.control(rank).epoch = 0xfffffd;
  gather.run({.blocks = 3, .seed = 1}, 5);
  for (int rank = 0; rank < 2; ++rank) {
    for (int launch = 0; launch < 5; ++launch) CHECK(gather.all_came(launch, rank));
    CHECK(gather.team.idle(rank, 2));
  }
}

TEST_CASE("an all-gather without a rank ends in time, tells which, and gives NaN and -1 in its place") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 4, 7}, 2);
    gather.clear_outputs();
    gather.team.timeout_ns = 100'000;
    gather.run({.blocks = 4, .seed = seed, .absent = 1});
    for (const int rank : {0, 2}) {
      const Report& report = gather.team.report(rank);
      CHECK(gather.team.reports(rank, Report::timed_out, 1));
      if (report.state == Report::timed_out) CHECK(report.flag == 0);
      CHECK(report.expected_epoch == 1);
      CHECK(report.seen_epoch == 0);
      CHECK(report.expected_tag == gather.team.tag_of(rank));
      CHECK(gather.came(0, rank, rank));
      CHECK(gather.nothing_came(0, rank, 1));
      CHECK(gather.team.idle(rank, 1));
    }
  }
}

TEST_CASE("a rank that has failed takes part no more, and its peers end at once, told by it") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 4, 7}, 3);
    gather.clear_outputs();
    gather.team.timeout_ns = 100'000;
    gather.run({.blocks = 4, .seed = seed, .absent = 1});
    gather.team.timeout_ns = test::Team::no_timeout;  // a late rank does not wait
    for (gather.first_launch = 1; gather.first_launch < 3; ++gather.first_launch) gather.run({.blocks = 4, .seed = 2});
    for (int rank = 0; rank < 3; ++rank) {
      for (const int launch : {1, 2}) {
        for (int of = 0; of < 3; ++of) CHECK(gather.nothing_came(launch, rank, of));
      }
      CHECK(gather.team.idle(rank, rank == 1 ? 2 : 3));
    }
    const Report& late = gather.team.report(1);
    CHECK(late.state == Report::peer_failed);
    CHECK((late.rank == 0 || late.rank == 2));
    CHECK(late.peer_state == Report::timed_out);
    CHECK(late.peer_rank == 1);
    CHECK(late.expected_epoch == 1);
    for (const int rank : {0, 2}) CHECK((gather.team.report(rank).state != Report::none));
  }
}

TEST_CASE("a rank that waits ends when a peer fails, long before its own time-out") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 4, 7}, 1);
    gather.clear_outputs();
    gather.team.timeout_of = [](int rank) { return rank == 2 ? std::uint64_t{100'000} : test::Team::no_timeout; };
    gather.run({.blocks = 4, .seed = seed, .absent = 1});
    CHECK(gather.team.report(2).state == Report::timed_out);
    CHECK(gather.team.report(0).state == Report::peer_failed);
    CHECK(gather.team.report(0).rank == 2);
    CHECK(gather.team.report(0).peer_rank == 1);
    CHECK(gather.nothing_came(0, 0, 1));
    CHECK(gather.team.idle(0, 1));
  }
}

TEST_CASE("the host ends an all-gather that waits") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 4, 7}, 1);
    gather.clear_outputs();
    for (const int rank : {0, 2}) gather.team.report(rank).abort = 1;
    gather.run({.blocks = 4, .seed = seed, .absent = 1});
    for (const int rank : {0, 2}) {
      CHECK(gather.team.reports(rank, Report::aborted, 1));
      CHECK(gather.nothing_came(0, rank, 1));
      CHECK(gather.team.idle(rank, 1));
    }
  }
}

TEST_CASE("ranks that run different plans find out") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 4}, 1);
    gather.clear_outputs();
    gather.team.tag_of = [](int rank) { return 100u + static_cast<unsigned>(rank); };
    gather.run({.blocks = 4, .seed = seed});
    for (const int rank : {0, 1}) {
      const Report& report = gather.team.report(rank);
      CHECK(gather.team.reports(rank, Report::other_plan, 1 - rank));
      CHECK(report.rank == 1 - rank);
      CHECK(report.expected_tag == 100u + static_cast<unsigned>(rank));
      if (report.state == Report::other_plan) CHECK(report.seen_tag == 101u - static_cast<unsigned>(rank));
      CHECK(gather.nothing_came(0, rank, 1 - rank));
      CHECK(gather.team.idle(rank, 1));
    }
  }
}

TEST_CASE("two launches at once on one rank are reported") {
  for (const std::uint32_t seed : test::seeds) {
    Gather gather({8, 4}, 1);
    gather.clear_outputs();
    gather.team.timeout_ns = 100'000;
    gather.run({.blocks = 2, .seed = seed, .absent = 1, .at_once = 2});
    CHECK(gather.team.report(0).state == Report::two_launches);
    CHECK(gather.team.report(0).rank == 0);
    CHECK(gather.nothing_came(0, 0, 1));
  }
}

}  // namespace
