// A candidate of a team that never ends, breaks its context or loses its worker, tried beside good ones in the workers of all ranks.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "e2e/team_fixture.hpp"
#include "faults/engine/liar.hpp"
#include "faults/engine/trial_bed.hpp"
#include "faults/engine/verdicts.hpp"
#include "processes.hpp"
#include "team/state.hpp"
#include "tune/team_bench.hpp"

namespace kiln::faults {
namespace {

using namespace e2e_team;
using test::Ranks;

constexpr std::chrono::seconds limit{3};

/// What one rank brings to the tune. The drivers of its workers obey `order`; this process's driver is loaded already.
struct RankScene {
  std::string order;
  Options options;
};

/// Tunes on `world` ranks. Returns what each rank says: what it computed, and on rank 0 how many candidates were good, and the others'
/// verdicts with reasons, a line each.
std::vector<std::string> tuned(int world, const std::function<RankScene(int rank)>& scene_of) {
  Ranks ranks;
  ranks.begin_all(world, [&](const team::Membership& of) {
    RankScene scene = scene_of(of.rank);
    Verdicts verdicts;
    std::string news;
    scene.options.candidate_limit = limit;
    scene.options.on_tune = [&verdicts, other = scene.options.on_tune](const TuneEvent& event) {
      verdicts(event);
      if (other) other(event);
    };
    scene.options.on_log = [&news](const LogEvent& event) {
      if (contains(std::string(event.text), "own processes")) news += "\n" + std::string(event.text);
    };
    const Rank rank(of, test::ample, scene.options);
    if (!scene.order.empty()) setenv("FAKE_CUDA", scene.order.c_str(), 1);
    const Gather one(rank, 100, 128);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    std::string said = one.outcome(std::vector<std::int64_t>(static_cast<std::size_t>(of.world), 100), 1) + news;
    if (of.rank != 0) return said;
    std::string remembered;
    const std::vector<store::Record> records = records_of(rank.folder / "overlay.kiln");
    for (const store::TriedCandidate& each : records.at(0).candidates)
      remembered += each.verdict == store::Verdict::launch_failed ? 'x' : '.';
    said += fmt::format("\n{} good, {} remembered as failed", verdicts.good > 0 ? "some" : "none",
                        std::ranges::count(remembered, 'x'));
    for (const std::string& each : verdicts.rejected) said += "\n" + each;
    return said;
  });
  std::vector<std::string> said;
  for (int rank = 0; rank < world; ++rank) said.push_back(ranks.outcome(static_cast<std::size_t>(rank)));
  return said;
}

Options in_workers() {
  Options options;
  options.isolation = Isolation::worker;
  options.worker = KILN_WORKER_PROGRAM;
  return options;
}

/// What a launch throws. A check would leave the process of a rank.
std::string failure_of(const Rank& rank, const Gather& one) {
  try {
    one.launch(rank);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Those of `program` that run candidates, and so have symmetric memory. Others compile.
std::vector<pid_t> team_workers(const fs::path& program) {
  std::vector<pid_t> found;
  for (const pid_t each : test::processes_of(program)) {
    std::ifstream file(fmt::format("/proc/{}/maps", each));
    const std::string maps{std::istreambuf_iterator<char>(file), {}};
    if (contains(maps, "memfd:")) found.push_back(each);
  }
  return found;
}

/// "chunk_bytes=... threads=512 ... launch_failed: ..." for each that was rejected.
std::vector<std::string> rejected(const std::string& said) {
  std::vector<std::string> lines;
  for (std::size_t at = said.find('\n', said.find(" good, ")); at != std::string::npos;) {
    const std::size_t end = said.find('\n', at + 1);
    lines.push_back(said.substr(at + 1, end == std::string::npos ? end : end - at - 1));
    at = end;
  }
  return lines;
}

/// Checks that candidates of 512 threads were rejected and no others, each for a reason that has all of `reasons`. Returns how many.
std::size_t check_rejected(const std::string& said, const std::vector<std::string>& reasons) {
  const std::vector<std::string> all = rejected(said);
  REQUIRE_MESSAGE(!all.empty(), said);
  for (const std::string& each : all) {
    CHECK_MESSAGE(contains(each, "threads=512"), each);
    for (const std::string& reason : reasons) CHECK_MESSAGE(contains(each, reason), each);
  }
  return all.size();
}

}  // namespace

TEST_CASE(
    "fault 107: a candidate of a team that never ends on one rank is ended on all by its limit, and the others go on") {
  const auto said = tuned(2, [](int rank) {
    RankScene scene{rank == 1 ? "kernel hang all_gather_push<2, 512>" : "", in_workers()};
    scene.options.search.trials = 6;
    return scene;
  });
  CHECK_MESSAGE(said[0].starts_with("right\nsome good"), said[0]);
  CHECK(said[1] == "right");
  const std::size_t count =
      check_rejected(said[0], {"launch_failed: on rank", "it was not done after 3 s, and was stopped"});
  CHECK_MESSAGE(contains(said[0], fmt::format("{} remembered as failed", count)), said[0]);
  tally(107, 1, "candidates of a team that never end");
}

TEST_CASE("fault 107: a candidate of a team that reads an illegal address on one rank is rejected alone") {
  const auto said = tuned(3, [](int rank) {
    return RankScene{rank == 2 ? std::string("kernel fault all_gather_push<3, 512>") : std::string(), in_workers()};
  });
  CHECK_MESSAGE(said[0].starts_with("right\nsome good"), said[0]);
  for (const int rank : {1, 2}) CHECK(said[static_cast<std::size_t>(rank)] == "right");
  check_rejected(said[0], {"on rank 2: ", "CUDA_ERROR_ILLEGAL_ADDRESS"});
  tally(107, 1, "candidates of a team that read an illegal address");
}

TEST_CASE("fault 107: what fails on two of five ranks fails alone, and a rank without a worker is told to all five") {
  const auto check_others = [](const std::vector<std::string>& said) {
    for (std::size_t rank = 1; rank < said.size(); ++rank) CHECK(said[rank] == "right");
  };
  SUBCASE("a candidate that reads an illegal address") {
    const auto said = tuned(5, [](int rank) {
      return RankScene{rank % 2 == 1 ? std::string("kernel fault all_gather_push<5, 512>") : std::string(),
                       in_workers()};
    });
    CHECK_MESSAGE(said[0].starts_with("right\nsome good"), said[0]);
    check_others(said);
    check_rejected(said[0], {"on ranks 1, 3: ", "CUDA_ERROR_ILLEGAL_ADDRESS"});
  }
  SUBCASE("a candidate that never ends") {
    const auto said = tuned(5, [](int rank) {
      RankScene scene{rank >= 3 ? "kernel hang all_gather_push<5, 512>" : "", in_workers()};
      scene.options.search.trials = 4;
      return scene;
    });
    CHECK_MESSAGE(said[0].starts_with("right\nsome good"), said[0]);
    check_others(said);
    check_rejected(said[0], {"launch_failed: on rank", "it was not done after 3 s, and was stopped"});
  }
  SUBCASE("ranks without a worker") {
    const auto said = tuned(5, [](int rank) {
      setenv("KILN_WORKER", rank == 2 || rank == 4 ? "none" : KILN_WORKER_PROGRAM, 1);
      return RankScene{};
    });
    CHECK_MESSAGE(contains(said[0], "some good, 0 remembered as failed"), said[0]);
    for (const std::string& each : said) {
      CHECK_MESSAGE(each.starts_with("right\n"), each);
      CHECK_MESSAGE(contains(each, "candidates run in the ranks' own processes"), each);
      CHECK_MESSAGE(contains(each, "on rank 2: kiln-worker was not found"), each);
    }
  }
  tally(107, 1, "tunes of five ranks of which two fail");
}

TEST_CASE("fault 107: workers of a team that are killed from outside cost no candidate") {
  int world = 2;
  SUBCASE("of two ranks") {}
  SUBCASE("of five ranks") { world = 5; }
  const TemporaryFolder folder;
  const fs::path program = folder / "kiln-worker";  // found by its path, which no other process has
  fs::create_symlink(KILN_WORKER_PROGRAM, program);
  const auto said = tuned(world, [&](int rank) {
    RankScene scene{{}, in_workers()};
    scene.options.worker = program;
    auto kills = std::make_shared<int>(0);
    scene.options.on_tune = [program, rank, kills](const TuneEvent& event) {
      if (rank == 0 && event.kind == TuneEvent::Kind::candidate && ++*kills % 4 == 1)
        for (const pid_t each : test::processes_of(program)) kill(each, SIGKILL);
    };
    return scene;
  });
  CHECK_MESSAGE(said[0].starts_with("right\nsome good, 0 remembered as failed"), said[0]);
  CHECK(rejected(said[0]).empty());
  for (std::size_t rank = 1; rank < said.size(); ++rank) CHECK(said[rank] == "right");
  CHECK(test::processes_of(program).empty());
  tally(107, 1, "tunes of a team whose workers are killed");
}

TEST_CASE("fault 107: where one rank can have no worker, all ranks try candidates in their own processes, and say so") {
  struct Case {
    std::string program, why;
  };
  for (const Case& of : {Case{"none", "kiln-worker was not found"}, Case{"/bin/true", "was to be run as a worker"}}) {
    CAPTURE(of.program);
    const auto said = tuned(2, [&](int rank) {
      setenv("KILN_WORKER", rank == 0 ? KILN_WORKER_PROGRAM : of.program.c_str(), 1);
      return RankScene{};
    });
    for (const std::string& each : said) {
      CHECK_MESSAGE(each.starts_with("right\n"), each);
      CHECK_MESSAGE(contains(each, "candidates run in the ranks' own processes"), each);
      CHECK_MESSAGE(contains(each, "on rank 1: "), each);
      CHECK_MESSAGE(contains(each, of.why), each);
    }
    CHECK_MESSAGE(contains(said[0], "some good, 0 remembered as failed"), said[0]);
    tally(107, 1, "ranks without a worker");
  }
}

TEST_CASE("fault 107: workers that lack memory leave the candidates to the ranks' own processes") {
  const auto said = tuned(2, [](int rank) {
    RankScene scene{rank == 1 ? std::string("memory 33554432") : std::string(), in_workers()};
    scene.options.isolation = Isolation::automatic;
    return scene;
  });
  for (const std::string& each : said) {
    CHECK_MESSAGE(each.starts_with("right\n"), each);
    CHECK_MESSAGE(contains(each, "candidates run in the ranks' own processes"), each);
    CHECK_MESSAGE(contains(each, "on rank 1"), each);
  }
  tally(107, 1, "workers of a team without memory");
}

TEST_CASE("fault 107: a rank that requires workers refuses the tune on all ranks where one can have none") {
  struct Case {
    std::string program, order, why;
    int requires_workers;  // the rank
  };
  for (const Case& of :
       {Case{"none", "", "kiln-worker was not found", 0}, Case{"/bin/true", "", "was to be run as a worker", 0},
        Case{KILN_WORKER_PROGRAM, "memory 33554432", "bytes are free", 1}}) {
    CAPTURE(of.program);
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& own) {
      setenv("KILN_WORKER", own.rank == 0 ? KILN_WORKER_PROGRAM : of.program.c_str(), 1);
      Options options;
      if (own.rank == of.requires_workers) options.isolation = Isolation::worker;
      const Rank rank(own, test::ample, options);
      if (own.rank == 1 && !of.order.empty()) setenv("FAKE_CUDA", of.order.c_str(), 1);
      const Gather one(rank, 100, 128);
      return failure_of(rank, one);
    });
    for (const std::size_t rank : {0, 1}) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(contains(said, "worker processes were asked for"), said);
      CHECK_MESSAGE(contains(said, "on rank 1: "), said);
      CHECK_MESSAGE(contains(said, of.why), said);
      CHECK_MESSAGE(contains(said, "leave Options::isolation automatic on all ranks"), said);
    }
  }
}

TEST_CASE(
    "fault 107: a candidate of a team that lacks memory in a worker costs itself at most, even where it hangs elsewhere") {
  for (const bool hangs : {false, true}) {
    CAPTURE(hangs);
    const auto said = tuned(2, [&](int rank) {
      RankScene scene{"launch CUDA_ERROR_OUT_OF_MEMORY all_gather_push<2, 512>", in_workers()};
      if (rank == 0) scene.order = hangs ? "kernel hang all_gather_push<2, 512>" : "";
      scene.options.isolation = Isolation::automatic;
      scene.options.search.trials = 6;
      return scene;
    });
    CHECK_MESSAGE(said[0].starts_with("right\nsome good"), said[0]);
    CHECK(said[1] == "right");
    check_rejected(said[0], {"launch_failed: on rank"});
  }
}

TEST_CASE("fault 107: ranks that could have no workers for one tune have them in the next") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    Options options;
    options.worker = KILN_WORKER_PROGRAM;
    Verdicts verdicts;
    int told = 0;
    options.on_tune = [&](const TuneEvent& event) { verdicts(event); };
    options.on_log = [&](const LogEvent& event) { told += contains(std::string(event.text), "own processes") ? 1 : 0; };
    const Rank rank(of, test::ample, options);
    std::string said;
    const auto tune = [&](std::int64_t rows, const char* order) {
      setenv("FAKE_CUDA", of.rank == 1 ? order : "", 1);
      const Gather one(rank, rows, rows);
      one.set(1);
      one.launch(rank);
      rank.machine.synchronize();
      said += one.outcome({rows, rows}, 1) + fmt::format(", told {} times\n", told);
    };
    tune(100, "memory 1048576");
    tune(300, "memory 1048576");
    const std::size_t before = verdicts.rejected.size();
    tune(1000, "kernel fault all_gather_push<2, 512>");  // of workers alone: this process has its driver
    if (of.rank == 0 && before > 0) said += "rejected in this process: " + verdicts.rejected.front();
    if (of.rank == 0 && before == verdicts.rejected.size()) said += "no worker ran";
    return said;
  });
  for (const std::size_t rank : {0, 1})
    CHECK(ranks.outcome(rank) == "right, told 1 times\nright, told 1 times\nright, told 1 times\n");
}

TEST_CASE("fault 107: a rank that another one leaves within a tune keeps nothing of the tune") {
  for (const bool is_isolated : {false, true})
    for (const int leaves : {0, 1}) {
      CAPTURE(is_isolated);
      CAPTURE(leaves);
      const TemporaryFolder folder;
      const fs::path program = folder / "kiln-worker";
      fs::create_symlink(KILN_WORKER_PROGRAM, program);
      Ranks ranks;
      ranks.begin_all(2, [&](const team::Membership& of) {
        Options options;
        options.isolation = is_isolated ? Isolation::worker : Isolation::in_process;
        options.worker = program;
        options.on_tune = [&, candidates = 0](const TuneEvent& event) mutable {
          if (event.kind != TuneEvent::Kind::candidate || ++candidates != 3) return;
          if (leaves == 0) raise(SIGKILL);
          pid_t other = 0;
          std::ifstream(folder / "rank 1") >> other;
          kill(other, SIGKILL);
        };
        if (of.rank == 1) std::ofstream(folder / "rank 1") << getpid();
        const Rank rank(of, test::ample, options);
        const Gather one(rank, 100, 128);
        const std::int64_t before = query("memory");
        const std::string failure = failure_of(rank, one);
        for (int waits = 0; waits < 200 && !team_workers(program).empty(); ++waits)  // the other rank's are ending
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const char* const what = contains(failure, "has ended") ? "a rank has ended" : failure.c_str();
        return fmt::format("{}: {} bytes more, {} workers", what, query("memory") - before,
                           team_workers(program).size());
      });
      CHECK(ranks.outcome(leaves == 0 ? 1 : 0) == "a rank has ended: 0 bytes more, 0 workers");
    }
}

TEST_CASE("fault 107: the workers of a team run from bucket to bucket, and end with the tune that was asked for") {
  for (const std::string what : {"a launch", "Engine::prepare", "a Tuner"}) {
    CAPTURE(what);
    const TemporaryFolder folder;
    const fs::path program = folder / "kiln-worker";
    fs::create_symlink(KILN_WORKER_PROGRAM, program);
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      Options options = in_workers();
      options.worker = program;
      std::set<pid_t> seen;
      options.on_tune = [&](const TuneEvent& event) {
        if (event.kind == TuneEvent::Kind::candidate)
          for (const pid_t each : team_workers(program)) seen.insert(each);
      };
      const Rank rank(of, test::ample, options);
      const Gather one(rank, 1000, 1000), other(rank, 3000, 3000);
      if (what == "a launch") {
        one.launch(rank);
        rank.machine.synchronize();
      } else if (what == "Engine::prepare") {
        static_cast<void>(rank.engine->prepare(one.op, std::vector<Problem>{one.problem, other.problem}));
      } else {
        static_cast<void>(
            Tuner(*rank.engine).tune(std::vector<Demand>{{"all_gather", one.problem}, {"all_gather", other.problem}}));
      }
      team::state_of(*rank.team).rendezvous.barrier();
      std::string said = fmt::format("{} began, {} run", seen.size(), team_workers(program).size());
      team::state_of(*rank.team).rendezvous.barrier();
      return said;
    });
    CHECK(ranks.outcome(0) == "2 began, 0 run");
    CHECK(ranks.outcome(1) == "0 began, 0 run");
  }
}

TEST_CASE("fault 107: a candidate about which the worker of another rank lies or is killed costs itself at most") {
  const Liar liars[2];
  constexpr std::array<tune::Point, 2> both{{{.candidate = 0, .size = 0}, {.candidate = 1, .size = 0}}};
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    const Liar& own = liars[of.rank];
    const Liar& other = liars[1];
    const Machine machine;
    Team team(of.rank, of.world, of.name, {.device = 0, .bytes = team_bytes, .timeout = test::ample});
    TrialBed bed(own.program());
    const cuda::Context context(0);
    const cuda::Context::Scope scope(context);
    tune::RankTrials trials(*team::state_of(team).member, 0, {own.program(), {}, {limit, limit}, {}});
    if (of.rank == 1) {
      tune::serve_team_trials(trials, 0);
      return std::string("served");
    }
    std::string said;
    const auto expect_of = [&](const char* what, bool is_right) {
      if (!is_right) said += std::string(what) + "; ";
    };
    {
      other.die_at(Asked::begin, 1);
      const auto bench =
          tune::team_bench({.bucket = {{bed.op, bed.device.facts}, bed.bucket}, .device = bed.device, .arch = "sm_90a"},
                           bed.cubins, trials);
      bench->set_sizes({bed.bucket});
      other.die_at(Asked::admit, 2);
      for (const std::size_t each : {0, 1})
        expect_of("not admitted", bed.admit(*bench, each).verdict == store::Verdict::ok);
      other.die_at(Asked::sample, 2);
      for (const tune::Samples& each : bench->sample(both, 2))
        expect_of("not sampled", each.failure.empty() && each.ns.size() == 2);
      for (int lie = 0; lie < count_of_lies(Asked::admit); ++lie) {
        other.lie_about(Asked::admit, lie);
        const tune::Admission admission = bed.admit(*bench, 2);
        expect_of("a lie is admitted", admission.verdict == store::Verdict::launch_failed);
        expect_of("no rank is named", contains(admission.reason, "on rank 1: "));
        other.be_honest();
        expect_of("the others are lost", bench->sample(both, 2)[1].ns.size() == 2);
      }
      for (int lie = 0; lie < count_of_lies(Asked::sample); ++lie) {
        other.lie_about(Asked::sample, lie);
        const tune::Samples alone = bench->sample({both.data(), 1}, 2)[0];
        expect_of("a lie is a sample", alone.ns.empty() && contains(alone.failure, "on rank 1: "));
        other.be_honest();
        expect_of("not admitted again", bed.admit(*bench, 0).verdict == store::Verdict::ok);
      }
      other.lie_about(Asked::sample, 0);
      for (const tune::Samples& each : bench->sample(both, 2))
        expect_of("not sampled one by one", each.ns.empty() && contains(each.failure, "on rank 1: "));
      other.be_honest();
      Ranks::say('+');
    }
    tune::end_team_trials(trials);
    return said;
  });
  CHECK(ranks.outcome(0) == "+");
  CHECK(ranks.outcome(1) == "served");
  tally(107, count_of_lies(Asked::admit) + count_of_lies(Asked::sample), "lies of another rank's worker");
}

}  // namespace kiln::faults
