// Ops of a team: ranks in processes of their own, each with an engine, over the fake driver's shared memory.
#include <limits>
#include <thread>

#include "e2e/team_fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace e2e_team;
using e2e::error_of;
using std::chrono::milliseconds;

TEST_CASE("ranks tune a bucket once, together, and gather other counts of it with no tune") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& of) {
    const Rank rank(of);
    const std::int64_t first = 100;
    const Gather one(rank, first, 128);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    std::string said = one.outcome({first, first, first}, 1);
    for (int step = 2; step < 6; ++step) {
      const std::int64_t own = 65 + 13 * ((of.rank + step) % 3);
      std::vector<std::int64_t> all;
      for (int each = 0; each < 3; ++each) all.push_back(65 + 13 * ((each + step) % 3));
      const Gather other(rank, own, 128);
      other.set(static_cast<float>(step));
      if (other.launch(rank) != Origin::hot) said += ", not hot";
      rank.machine.synchronize();
      said += ", " + other.outcome(all, static_cast<float>(step));
    }
    const Stats stats = rank.engine->stats();
    return said + fmt::format("; {} tunes", stats.tunes);
  });
  CHECK(ranks.outcome(0) == "right, right, right, right, right; 1 tunes");
  CHECK(ranks.outcome(1) == "right, right, right, right, right; 0 tunes");
  CHECK(ranks.outcome(2) == "right, right, right, right, right; 0 tunes");
}

TEST_CASE("a record that one rank has goes to the others, with its machine code") {
  e2e::TemporaryFolder shipped;
  const auto file = shipped / "base.kiln";
  {
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      Options options;
      options.overlay = of.rank == 0 ? file : std::filesystem::path();
      const Rank rank(of, ample, options);
      const Gather one(rank, 100, 100);
      one.set(1);
      one.launch(rank);
      rank.machine.synchronize();
      return one.outcome({100, 100}, 1);
    });
    REQUIRE(ranks.outcome(0) == "right");
    REQUIRE(ranks.outcome(1) == "right");
  }
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    Options options;
    options.on_miss = MissPolicy::error;
    if (of.rank == 1) options.bases = {file};
    const Rank rank(of, ample, options);
    const Gather one(rank, 70, 100);
    one.set(2);
    one.launch(rank);
    rank.machine.synchronize();
    return one.outcome({70, 70}, 2) +
           fmt::format(", {} tunes, {} compiles", rank.engine->stats().tunes, rank.engine->stats().compiles);
  });
  CHECK(ranks.outcome(0) == "right, 0 tunes, 0 compiles");
  CHECK(ranks.outcome(1) == "right, 0 tunes, 0 compiles");
}

TEST_CASE("ranks that ask for other buckets, or that do not all tune, are all told") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    Options options;
    options.on_miss = of.rank == 0 ? MissPolicy::tune : MissPolicy::error;
    const Rank rank(of, ample, options);
    const Gather one(rank, 100, 1024), far(rank, of.rank == 0 ? 100 : 1000, 1024);
    const Error unlike = error_of([&] { far.launch(rank); });
    if (unlike.kind() != ErrorKind::bad_input || !holds(unlike.what(), "rank 1 launches all_gather"))
      return std::string(unlike.what());
    const Error none = error_of([&] { one.launch(rank); });
    if (none.kind() != ErrorKind::not_tuned || !holds(none.what(), "neither do all ranks tune"))
      return std::string(none.what());
    return std::string("told");
  });
  CHECK(ranks.outcome(0) == "told");
  CHECK(ranks.outcome(1) == "told");
}

TEST_CASE("ranks that take fallbacks launch one stand-in, that of the rank with a near record") {
  e2e::TemporaryFolder shipped;
  const auto file = shipped / "base.kiln";
  {
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      Options options;
      if (of.rank == 0) options.overlay = file;
      const Rank rank(of, ample, options);
      const Gather near(rank, 200, 256);
      near.set(1);
      near.launch(rank);
      rank.machine.synchronize();
      return near.outcome({200, 200}, 1);
    });
    REQUIRE(ranks.outcome(0) == "right");
    REQUIRE(ranks.outcome(1) == "right");
  }
  for (const bool has_near : {true, false})
    for (const char* alike : {"any", "alike"}) {
      CAPTURE(has_near);
      CAPTURE(alike);
      Ranks ranks;
      ranks.begin_all(2, [&](const team::Membership& of) {
        Options options;
        options.on_miss = of.rank == 0 ? MissPolicy::nearest : MissPolicy::background;
        if (of.rank == 1 && has_near) options.bases = {file};
        const Rank rank(of, ample, options);
        const Gather one(rank, 100, 128, alike), other(rank, 70, 128, alike);
        one.set(1);
        std::string said(to_string(one.launch(rank)));
        rank.machine.synchronize();
        said += ", " + one.outcome({100, 100}, 1);
        other.set(2);
        said += fmt::format(", {}", to_string(other.launch(rank)));
        rank.machine.synchronize();
        said += ", " + other.outcome({70, 70}, 2);
        const Stats stats = rank.engine->stats();
        return said + fmt::format("; {} tunes, {} absent", stats.tunes, stats.misses.absent);
      });
      const std::string origin = has_near && alike == std::string("any") ? "nearest" : "default";
      CHECK(ranks.outcome(0) == origin + fmt::format(", right, {}, right; 0 tunes, 1 absent", origin));
      CHECK(ranks.outcome(1) == origin + fmt::format(", right, {}, right; 0 tunes, 1 absent", origin));
    }
}

TEST_CASE("a team of which a rank may tune and another may not takes no stand-in") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    Options options;
    options.on_miss = of.rank == 0 ? MissPolicy::tune : MissPolicy::nearest;
    const Rank rank(of, ample, options);
    const Gather one(rank, 100, 1024);
    const Error none = error_of([&] { one.launch(rank); });
    return none.kind() == ErrorKind::not_tuned ? std::string("told") : std::string(none.what());
  });
  CHECK(ranks.outcome(0) == "told");
  CHECK(ranks.outcome(1) == "told");
}

TEST_CASE("an op of a team is refused without a team, and for another number of ranks") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather one(rank, 100, 100);
    const Problem three =
        one.op.problem({{"rows", std::int64_t{100}}, {"cols", cols}, {"world", std::int64_t{3}}, {"dtype", "f32"}});
    const Error unlike = error_of([&] { one.op.launch(three, one.arguments, rank.machine.stream()); });
    Options alone;
    alone.overlay = std::filesystem::path();
    const Engine without(alone);
    const Error none =
        error_of([&] { without.op("all_gather").launch(one.problem, one.arguments, rank.machine.stream()); });
    return fmt::format("{} / {}", unlike.what(), none.what());
  });
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string said = ranks.outcome(i);
    CHECK_MESSAGE(holds(said, "has 2 ranks"), said);
    CHECK_MESSAGE(holds(said, "set Options::team"), said);
  }
}

TEST_CASE("a capture finds the bucket ready or is refused, and its graph serves other data") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather one(rank, 100, 100);
    REQUIRE(e2e::driver_call<Stream, int>("cuStreamBeginCapture_v2", rank.machine.stream(), 2) == 0);
    const Error refused = error_of([&] { one.launch(rank); });
    CUgraph_st* none = nullptr;
    e2e::driver_call<Stream, CUgraph_st**>("cuStreamEndCapture", rank.machine.stream(), &none);
    if (refused.kind() != ErrorKind::capture) return std::string(refused.what());
    one.set(1);
    one.launch(rank);
    const e2e::Graph graph(rank.machine, e2e::Graph::relaxed, [&] { one.launch(rank); });
    std::string said;
    for (int step = 2; step < 6; ++step) {
      one.set(static_cast<float>(step));
      graph.replay();
      rank.machine.synchronize();
      said += one.outcome({100, 100}, static_cast<float>(step)) + " ";
    }
    return said;
  });
  CHECK(ranks.outcome(0) == "right right right right ");
  CHECK(ranks.outcome(1) == "right right right right ");
}

TEST_CASE("a launch whose peer comes too late ends with NaN and an error, and a reset serves again") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, milliseconds(2000));
    const Gather one(rank, 100, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    std::string said;
    if (of.rank == 0) {
      one.launch(rank);
      rank.machine.synchronize();
      said = one.outcome({100, 100}, 1);
      const Error late = error_of([&] { one.launch(rank); });
      if (late.kind() != ErrorKind::team_failed || !holds(late.what(), "waited for rank 1"))
        return std::string(late.what());
      const Error checked = error_of([&] { static_cast<void>(rank.engine->check(rank.machine.stream())); });
      if (checked.kind() != ErrorKind::team_failed) return std::string(checked.what());
    } else {
      std::this_thread::sleep_for(milliseconds(2500));
      said = "late";
    }
    rank.team->reset();
    one.set(7);
    one.launch(rank);
    rank.machine.synchronize();
    return said + " " + one.outcome({100, 100}, 7);
  });
  CHECK(ranks.outcome(0) == "NaN right");
  CHECK(ranks.outcome(1) == "late right");
}

TEST_CASE("ranks of any patience reset their team") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, milliseconds::max());
    if (of.rank == 1) std::this_thread::sleep_for(milliseconds(300));
    rank.team->reset();
    return std::string("reset");
  });
  for (const int rank : {0, 1}) CHECK(ranks.outcome(rank) == "reset");
}

TEST_CASE("a team of more symmetric memory than addresses reach is refused before its ranks meet") {
  const Error error = error_of([] { Team(0, 2, "large", {0, std::numeric_limits<std::int64_t>::max()}); });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK(holds(error.what(), "TeamOptions::bytes is 9223372036854775807, expected 70368744177664 at most"));
}

TEST_CASE("a rank that comes late ends at once, and names the rank that has failed and why") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, milliseconds(of.rank == 0 ? 2000 : 60'000));
    const Gather one(rank, 100, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    if (of.rank == 1) std::this_thread::sleep_for(milliseconds(2500));
    const auto begun = std::chrono::steady_clock::now();
    one.launch(rank);
    rank.machine.synchronize();
    const bool was_long = std::chrono::steady_clock::now() - begun > milliseconds(20'000);
    const Error failed = error_of([&] { one.launch(rank); });
    std::string said = one.outcome({100, 100}, 1) + (was_long ? " long after; " : "; ") + failed.what();
    rank.team->reset();
    one.set(7);
    one.launch(rank);
    rank.machine.synchronize();
    return said + " " + one.outcome({100, 100}, 7);
  });
  const std::string first = ranks.outcome(0), late = ranks.outcome(1);
  CHECK_MESSAGE(first.starts_with("NaN; "), first);
  CHECK_MESSAGE(holds(first, "rank 0 waited for rank 1"), first);
  CHECK_MESSAGE(late.starts_with("NaN; "), late);
  CHECK_MESSAGE(holds(late, "because rank 0 had failed: it waited for rank 1 longer than its time-out"), late);
  for (const std::string& each : {first, late}) CHECK_MESSAGE(each.ends_with(" right"), each);
}

TEST_CASE("the death of a rank ends the launches of the others long before the time-out") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, milliseconds(60'000));
    const Gather one(rank, 100, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    if (of.rank == 1) {
      Ranks::say('r');
      for (;;) pause();
    }
    one.launch(rank);  // the other never comes
    rank.machine.synchronize();
    const std::string said = one.outcome({100, 100}, 1);
    const Error ended = error_of([&] { one.launch(rank); });
    return said + (holds(ended.what(), "a rank has ended") ? " told" : ended.what());
  });
  ranks.await(1, 'r');
  std::this_thread::sleep_for(milliseconds(300));
  const auto begun = std::chrono::steady_clock::now();
  ranks.kill(1);
  CHECK(ranks.outcome(0) == "NaN told");
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
}

TEST_CASE("a tune that rank 0 stops is told to all ranks, and the team goes on") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    Options options;
    auto stops = std::make_shared<bool>(true);
    options.stop_requested = [stops, rank = of.rank] { return *stops && rank == 0; };
    const Rank rank(of, ample, options);
    const Gather one(rank, 100, 100);
    const Error stopped = error_of([&] { one.launch(rank); });
    if (stopped.kind() != ErrorKind::interrupted || !holds(stopped.what(), "rank 0"))
      return std::string(stopped.what());
    *stops = false;
    one.set(3);
    one.launch(rank);
    rank.machine.synchronize();
    return "told, then " + one.outcome({100, 100}, 3);
  });
  CHECK(ranks.outcome(0) == "told, then right");
  CHECK(ranks.outcome(1) == "told, then right");
}

TEST_CASE("a launch that failed on one rank fails the next plan on all of them") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, milliseconds(2000));
    const Gather one(rank, 100, 100), other(rank, 10, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    if (of.rank == 0) {
      one.launch(rank);  // rank 1 leaves it out
      rank.machine.synchronize();
    } else {
      std::this_thread::sleep_for(milliseconds(2500));
    }
    const Error failed = error_of([&] { other.launch(rank); });
    if (failed.kind() != ErrorKind::team_failed || !holds(failed.what(), "rank 0")) return std::string(failed.what());
    rank.team->reset();
    other.set(4);
    other.launch(rank);
    rank.machine.synchronize();
    return "told, then " + other.outcome({10, 10}, 4);
  });
  CHECK(ranks.outcome(0) == "told, then right");
  CHECK(ranks.outcome(1) == "told, then right");
}

TEST_CASE("a forked child can do nothing with a team, and its parent's goes on") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    Rank rank(of);
    const Gather one(rank, 100, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      const auto is_refused = [](auto work) { return holds(error_of(work).what(), "was forked from"); };
      const bool all = is_refused([&] { one.launch(rank); }) && is_refused([&] { rank.team->reset(); }) &&
                       is_refused([&] { rank.team->close(); });
      rank.engine.reset();
      rank.team.reset();
      _exit(all ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    one.set(2);
    one.launch(rank);
    const Gather other(rank, 10, 10);  // a bucket of its own, so that the ranks speak
    other.set(3);
    other.launch(rank);
    rank.machine.synchronize();
    return fmt::format("{}, then {} {}", status, one.outcome({100, 100}, 2), other.outcome({10, 10}, 3));
  });
  CHECK(ranks.outcome(0) == "0, then right right");
  CHECK(ranks.outcome(1) == "0, then right right");
}

TEST_CASE("an engine on another device than its team's is refused, and so is a team that was closed") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    e2e::control("devices 2");
    const Rank rank(of);
    Options elsewhere;
    elsewhere.overlay = std::filesystem::path();
    elsewhere.device = 1;
    elsewhere.team = rank.team;
    const Error device = error_of([&] { const Engine engine(elsewhere); });
    const Gather one(rank, 100, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    rank.team->close();
    const Error closed = error_of([&] { one.launch(rank); });
    return fmt::format("{} / {}", device.what(), closed.what());
  });
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string said = ranks.outcome(i);
    CHECK_MESSAGE(holds(said, "Options::device is 1"), said);
    CHECK_MESSAGE(holds(said, "was closed"), said);
  }
}
