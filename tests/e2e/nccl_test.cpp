// NCCL as an implementation of an op of a team: tuned, kept, launched, and done without on all ranks alike.
#include <bit>
#include <cstdlib>
#include <thread>

#include "e2e/team_fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace e2e_team;
using e2e::control;
using e2e::error_of;
using e2e::query;
using std::chrono::milliseconds;

namespace {

constexpr std::int64_t rows = 100;

/// Who computes what `work` launches: "nccl", "push", or both or none of them.
template <typename Work>
std::string server_of(const Work& work) {
  const std::int64_t library = query("launches vendor_collective"), own = query("launches all_gather_push");
  work();
  return std::string(query("launches vendor_collective") > library ? "nccl" : "") +
         (query("launches all_gather_push") > own ? "push" : "");
}

/// Launches twice with other values: the outcome, and who served the second.
std::string served(const Rank& rank, const Gather& one, int world) {
  const std::vector<std::int64_t> all(static_cast<std::size_t>(world), rows);
  std::string said, by;
  for (const float step : {1.0F, 2.0F}) {
    one.set(step);
    by = server_of([&] { one.launch(rank); });
    rank.machine.synchronize();
    said += one.outcome(all, step) + " ";
  }
  return said + "by " + by;
}

Options with_file(const std::filesystem::path& file, MissPolicy on_miss) {
  Options options;
  options.on_miss = on_miss;
  if (on_miss == MissPolicy::tune)
    options.overlay = file;
  else
    options.bases = {file};
  return options;
}

/// A file with a record of the bucket that NCCL won.
void tune_into(const e2e::TemporaryFolder& folder) {
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    const Rank rank(of, ample, of.rank == 0 ? with_file(folder / "base.kiln", MissPolicy::tune) : Options());
    const Gather one(rank, rows, rows, "alike");
    return served(rank, one, 2);
  });
  REQUIRE(ranks.outcome(0) == "right right by nccl");
  REQUIRE(ranks.outcome(1) == "right right by nccl");
}

}  // namespace

TEST_CASE("NCCL serves ranks that launch alike where it is the fastest, and its record keeps its version") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather one(rank, rows, rows, "alike");
    const std::string said = served(rank, one, 3);
    const Plan plan = one.op.plan(one.problem);
    const Explanation explanation = rank.engine->explain(one.op, one.problem);
    return fmt::format("{}; {}{}, {}, {} tunes", said, plan.implementation(), plan.config(), explanation.library,
                       rank.engine->stats().tunes);
  });
  CHECK(ranks.outcome(0) == "right right by nccl; nccl, nccl 2.28.9, 1 tunes");
  CHECK(ranks.outcome(1) == "right right by nccl; nccl, nccl 2.28.9, 0 tunes");
  CHECK(ranks.outcome(2) == "right right by nccl; nccl, nccl 2.28.9, 0 tunes");
}

TEST_CASE("workers time NCCL by a communicator of their own") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    Options options;
    options.isolation = Isolation::worker;
    options.worker = std::filesystem::path(KILN_COMMAND).parent_path() / "kiln-worker";
    std::int64_t rejected = 0;
    options.on_tune = [&](const TuneEvent& event) {
      rejected += event.kind == TuneEvent::Kind::candidate && event.verdict != "ok" ? 1 : 0;
    };
    const Rank rank(of, ample, options);
    const Gather one(rank, rows, rows, "alike");
    const std::string said = served(rank, one, 2);
    return fmt::format("{}, {} rejected, {} launches here", said, rejected, query("launches vendor_collective"));
  });
  CHECK(ranks.outcome(0) == "right right by nccl, 0 rejected, 2 launches here");
  CHECK(ranks.outcome(1) == "right right by nccl, 0 rejected, 2 launches here");
}

TEST_CASE("kernels serve where NCCL is slower on one rank") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    if (of.rank == 1) control("kernel slow 100 vendor_collective");
    const Gather one(rank, rows, rows, "alike");
    std::string said;
    const std::string tried = server_of([&] { said = served(rank, one, 2); });
    return said + ", tried " + tried;
  });
  CHECK(ranks.outcome(0) == "right right by push, tried ncclpush");
  CHECK(ranks.outcome(1) == "right right by push, tried ncclpush");
}

TEST_CASE("NCCL is never asked for ranks that may have unequal rows") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather one(rank, 80 + 10 * of.rank, 128);
    const std::string by = server_of([&] {
      one.set(1);
      one.launch(rank);
      rank.machine.synchronize();
    });
    return one.outcome({80, 90}, 1) + " by " + by;
  });
  CHECK(ranks.outcome(0) == "right by push");
  CHECK(ranks.outcome(1) == "right by push");
}

TEST_CASE("rows that lie apart, and lengths on the device, go to the record's own kernel") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather dense(rank, rows, rows, "alike"), apart(rank, rows, 128, "alike");
    Gather measured(rank, rows, rows, "alike");
    const e2e::Floats length(1);
    length.upload({std::bit_cast<float>(std::int32_t{70})});
    measured.arguments.set(measured.op.axis("rows"), reinterpret_cast<const std::int32_t*>(length.address()));
    measured.set(3);
    std::string said = served(rank, dense, 2) + "; " + served(rank, apart, 2) + "; ";
    said += server_of([&] { measured.launch(rank); });
    rank.machine.synchronize();
    return said + " " + measured.outcome({70, 70}, 3) + fmt::format("; {} tunes", rank.engine->stats().tunes);
  });
  CHECK(ranks.outcome(0) == "right right by nccl; right right by push; push right; 1 tunes");
  CHECK(ranks.outcome(1) == "right right by nccl; right right by push; push right; 0 tunes");
}

TEST_CASE("where one rank lacks NCCL, or cannot join, none uses it in a tune") {
  for (const char* each : {"KILN_NCCL_LIBRARY=none", "FAKE_NCCL_FAILS=1"}) {
    std::string variable = each;
    CAPTURE(variable);
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      if (of.rank == 1) putenv(variable.data());
      const Rank rank(of);
      const Gather one(rank, rows, rows, "alike");
      std::string said;
      const std::string by = server_of([&] { said = served(rank, one, 2); });
      const std::vector<std::string> warnings = rank.engine->warnings();
      return said + ", all by " + by + (warnings.empty() ? "" : "; " + warnings.front());
    });
    const std::string expected = variable.starts_with("FAKE") ? "does without NCCL" : "";
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(said.starts_with("right right by push, all by push"), said);
      CHECK_MESSAGE(holds(said, expected), said);
    }
  }
}

TEST_CASE("a record that NCCL won serves all ranks without it where one rank lacks it") {
  const e2e::TemporaryFolder folder;
  tune_into(folder);
  for (const bool is_missing : {false, true}) {
    CAPTURE(is_missing);
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      if (of.rank == 1 && is_missing) setenv("KILN_NCCL_LIBRARY", "none", 1);
      const Rank rank(
          of, ample, of.rank == 0 ? with_file(folder / "base.kiln", MissPolicy::error) : [] {
            Options none;
            none.on_miss = MissPolicy::error;
            return none;
          }());
      const Gather one(rank, rows, rows, "alike");
      return served(rank, one, 2) + fmt::format(", {} compiles", rank.engine->stats().compiles);
    });
    for (std::size_t rank = 0; rank < 2; ++rank)
      CHECK(ranks.outcome(rank) ==
            (is_missing ? "right right by push, 0 compiles" : "right right by nccl, 0 compiles"));
  }
}

TEST_CASE("a capture of NCCL's launch serves other data") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather one(rank, rows, rows, "alike");
    std::string said = served(rank, one, 2);
    const e2e::Graph graph(rank.machine, e2e::Graph::relaxed, [&] { one.launch(rank); });
    for (int step = 3; step < 5; ++step) {
      one.set(static_cast<float>(step));
      const std::string by = server_of([&] { graph.replay(); });
      rank.machine.synchronize();
      said += "; " + one.outcome({rows, rows}, static_cast<float>(step)) + " by " + by;
    }
    rank.team->close();
    return said;
  });
  CHECK(ranks.outcome(0) == "right right by nccl; right by nccl; right by nccl");
  CHECK(ranks.outcome(1) == "right right by nccl; right by nccl; right by nccl");
}

TEST_CASE("the death of a rank ends NCCL's launches of the others, and the next launch says so") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, milliseconds(60'000));
    const Gather one(rank, rows, rows, "alike");
    const std::string said = served(rank, one, 2);
    if (of.rank == 1) {
      Ranks::say('r');
      for (;;) pause();
    }
    one.launch(rank);  // the other never comes
    rank.machine.synchronize();
    const Error ended = error_of([&] { one.launch(rank); });
    const bool is_told = ended.kind() == ErrorKind::team_failed && holds(ended.what(), "ended NCCL's collectives");
    return said + (is_told ? ", told" : ended.what());
  });
  ranks.await(1, 'r');
  std::this_thread::sleep_for(milliseconds(300));
  const auto begun = std::chrono::steady_clock::now();
  ranks.kill(1);
  CHECK(ranks.outcome(0) == "right right by nccl, told");
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
}

TEST_CASE("a rank that dies while it joins NCCL's communicator ends the plan of the others at once") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& of) {
    setenv("FAKE_NCCL_DIES", "1", 1);
    const Rank rank(of, milliseconds(60'000));
    const Gather one(rank, rows, rows, "alike");
    const Error ended = error_of([&] { one.launch(rank); });
    return fmt::format("{}: {}", to_string(ended.kind()), ended.what());
  });
  const auto begun = std::chrono::steady_clock::now();
  for (const std::size_t rank : {0U, 2U}) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("team_failed: "), said);
    CHECK_MESSAGE(holds(said, "rank 1"), said);
    CHECK_MESSAGE(holds(said, "has ended or left the team"), said);
  }
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
}

TEST_CASE("a rank that does not come to NCCL's communicator within the time-out leaves all without NCCL") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    setenv("FAKE_NCCL_HANGS", "1", 1);
    const Rank rank(of, milliseconds(2000));
    const Gather one(rank, rows, rows, "alike");
    const std::string said = served(rank, one, 2);
    const std::vector<std::string> warnings = rank.engine->warnings();
    return said + "; " + (warnings.empty() ? "" : warnings.front());
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("right right by push; "), said);
    CHECK_MESSAGE(holds(said, "not all ranks came to ncclCommInitRank within 2000 ms"), said);
  }
}

TEST_CASE("a rank that dies while the others close the team leaves none of them in NCCL") {
  for (const bool is_leaving : {false, true}) {  // NCCL's communicator, or the team before that
    CAPTURE(is_leaving);
    Ranks ranks;
    ranks.begin_all(3, [&](const team::Membership& of) {
      if (is_leaving) setenv("FAKE_NCCL_DIES_LEAVING", "1", 1);
      const Rank rank(of, milliseconds(60'000));
      const Gather one(rank, rows, rows, "alike");
      const std::string said = served(rank, one, 3);
      Ranks::say('r');
      while (of.rank == 1 && !is_leaving) pause();
      const Error ended = error_of([&] { rank.team->close(); });
      return fmt::format("{}; {}: {}", said, to_string(ended.kind()), ended.what());
    });
    for (std::size_t rank = 0; rank < 3; ++rank) ranks.await(rank, 'r');
    const auto begun = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(milliseconds(300));
    if (!is_leaving) ranks.kill(1);
    for (const std::size_t rank : {0U, 2U}) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(said.starts_with("right right by nccl; team_failed: "), said);
      CHECK_MESSAGE(holds(said, "rank 1"), said);
    }
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
  }
}
