// The command on the ranks of a team: forks of its own, or processes that a launcher began.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "e2e/command.hpp"
#include "e2e/team_fixture.hpp"
#include "processes.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace e2e_team;
using e2e::contains;
using e2e::expect;
using e2e::shell;
using e2e::TemporaryFolder;
using std::chrono::milliseconds;

namespace {

namespace fs = std::filesystem;

const std::string two_gpus = "export FAKE_CUDA='devices 2'; ";
const std::string two_gpus_by_pcie = "export FAKE_CUDA='devices 2; pcie 1'; ";
const std::string one_bucket = "all_gather rows=100 cols=64 dtype=f32";

std::string overlay_of(const TemporaryFolder& folder, const char* name = "overlay.kiln") {
  return " --overlay " + (folder / name).string() + " ";
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What the ranks of a launcher said, standard output and error, and their exit statuses.
struct Launched {
  std::string said[2];
  std::string statuses;
};

/// Begins `words` on two ranks as torchrun does; `$RANK` is theirs.
Launched launch(const TemporaryFolder& folder, const std::string& words) {
  const std::string at = (folder / "rank").string();
  Launched launched;
  launched.statuses = expect(
      0, two_gpus + "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TORCHELASTIC_RUN_ID='" +
             unique_name() + "'; for RANK in 0 1; do export RANK LOCAL_RANK=$RANK; { kiln " + words + " >" + at +
             "$RANK 2>&1; echo $? >" + at + "status$RANK; } & done; wait; cat " + at + "status0 " + at + "status1");
  for (const int rank : {0, 1}) launched.said[rank] = text_of(at + std::to_string(rank));
  return launched;
}

/// What two ranks of a program say whose files hold all that they need.
void check_served(const fs::path& file) {
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    REQUIRE(e2e::driver_call<unsigned>("cuInit", 0U) == 0);
    e2e::control("devices 2");  // linked as the command's were
    Options options;
    options.device = of.rank;
    options.overlay = fs::path();
    options.on_miss = MissPolicy::error;
    options.bases = {file};
    const Rank rank(of, ample, options);
    const Gather one(rank, 70, 100);
    one.set(2);
    one.launch(rank);
    rank.machine.synchronize();
    const Stats stats = rank.engine->stats();
    return one.outcome({70, 70}, 2) + fmt::format(", {} tunes, {} compiles", stats.tunes, stats.compiles);
  });
  CHECK(ranks.outcome(0) == "right, 0 tunes, 0 compiles");
  CHECK(ranks.outcome(1) == "right, 0 tunes, 0 compiles");
}

}  // namespace

TEST_CASE("kiln tune --ranks tunes an op of a team into a file that serves a program's ranks") {
  const TemporaryFolder folder;
  const std::string said = expect(0, two_gpus + "kiln tune " + one_bucket + " --ranks 2" + overlay_of(folder));
  CHECK_MESSAGE(contains(said, "[1/1] all_gather rows=128 cols=64 world=2 dtype=f32"), said);
  CHECK_MESSAGE(contains(said, "tuned now"), said);
  CHECK_MESSAGE(said.find("tuned now") == said.rfind("tuned now"), said);  // rank 0 alone prints
  check_served(folder / "overlay.kiln");
  // One config, for whatever sizes the ranks are at.
  const std::string stored = expect(0, "kiln cache export --text --no-candidates" + overlay_of(folder));
  CHECK_MESSAGE(contains(stored, R"("sizes":"rows=65..128")"), stored);
  CHECK_MESSAGE(stored.find(R"("sizes")") == stored.rfind(R"("sizes")"), stored);
  const std::string again =
      expect(0, two_gpus + "kiln tune " + one_bucket + " world=2 --ranks 2 --json" + overlay_of(folder));
  CHECK_MESSAGE(contains(again, R"("outcome":"found","origin":"overlay")"), again);
  CHECK_FALSE(contains(again, R"("event":"begun")"));
  CHECK(contains(expect(0, two_gpus + "kiln tune " + one_bucket + " --force --ranks 2 --json" + overlay_of(folder)),
                 R"("outcome":"tuned","origin":"overlay")"));
}

TEST_CASE("ranks of a launcher tune together, rank 0 prints and keeps the record") {
  const TemporaryFolder folder;
  const Launched launched = launch(folder, "tune " + one_bucket + overlay_of(folder));
  CHECK(launched.statuses == "0\n0\n");
  CHECK_MESSAGE(contains(launched.said[0], "tuned now"), launched.said[0]);
  CHECK(launched.said[1] == "");
  check_served(folder / "overlay.kiln");
}

TEST_CASE("a workload of both sorts of ops is one command and one file") {
  const TemporaryFolder folder;
  std::ofstream(folder / "both.toml") << "[[workload]]\nop = \"scale\"\naxes = { rows = 64, cols = 128 }\n"
                                         "types = { dtype = \"f32\" }\n"
                                         "[[workload]]\nop = \"all_gather\"\naxes = { rows = \"65..128\", cols = 64 }\n"
                                         "types = { dtype = \"f32\" }\n";
  const std::string workload = (folder / "both.toml").string(), file = (folder / "both.kiln").string();
  const std::string at = e2e::globals(folder);
  const std::string refused = expect(2, "kiln prewarm " + workload + at);
  CHECK_MESSAGE(contains(refused, "both.toml names ops of a team, whose ranks tune together. Add --ranks 2"), refused);
  const std::string said = expect(0, two_gpus + "kiln prewarm " + workload + " --ranks 2 -o " + file + at);
  CHECK_MESSAGE(contains(said, "2, 2 with a record"), said);
  check_served(file);
  const std::string turned =
      expect(0, two_gpus + "kiln prewarm " + workload + " --ranks 2 --devices 1,0 -o " +
                    (folder / "turned.kiln").string() + e2e::globals(folder, "turned_overlay.kiln"));
  CHECK_MESSAGE(contains(turned, "2, 2 with a record"), turned);
  std::ofstream(folder / "scale.trace") << "scale rows=64 cols=128 dtype=f32\n";
  expect(0, "kiln replay " + (folder / "scale.trace").string() + " --policy error --base " + file +
                e2e::globals(folder, "none.kiln"));
  // What reads files reads this one.
  const std::string alone = " --overlay '' --base " + file;
  const std::string gather = "all_gather rows=70 cols=64 world=2 dtype=f32";
  const std::string explained = expect(0, "kiln explain " + gather + alone);
  CHECK_MESSAGE(contains(explained, "base " + file + " has it: no compile"), explained);
  CHECK_FALSE(contains(explained, "next:"));
  CHECK(contains(expect(0, "kiln explain " + gather + alone + " --device-class h200/nvlink"), "/nvlink | "));
  CHECK(contains(expect(0, "kiln explain " + gather + alone + " --device-class H200/pcie"), "/pcie | "));
  const std::string missing = expect(0, "kiln explain all_gather rows=1000 cols=64 world=2 dtype=f32" + alone);
  CHECK_MESSAGE(contains(missing, "\n  kiln tune all_gather rows=1000 cols=64 world=2 dtype=f32 --ranks 2"), missing);
  CHECK_MESSAGE(contains(missing, "on 2 GPUs of class"), missing);
  CHECK(contains(expect(0, "kiln cache verify " + file), "both.kiln: sound"));
  const std::string trace = (folder / "one.trace").string();
  std::ofstream(trace) << gather << "\n";
  CHECK(contains(expect(0, "kiln replay " + trace + " --dry-run" + alone), "base"));
  CHECK(contains(expect(2, "kiln replay " + trace + alone), "line 1 of the trace is of all_gather, an op of a team"));
  CHECK(contains(expect(2, "kiln run " + gather + alone),
                 "all_gather is an op of a team, which kiln run does not launch"));
  const std::string benched = expect(0, "kiln bench records --op all_gather" + alone);
  CHECK_MESSAGE(contains(benched, "1 record of ops of a team was not timed"), benched);
}

TEST_CASE("without ranks, with other ranks than asked for, or with too few GPUs, the command says what to do") {
  const TemporaryFolder folder;
  const std::string at = overlay_of(folder);
  const std::string alone = expect(2, "kiln tune " + one_bucket + at);
  for (const char* way : {"all_gather is an op of a team", "--ranks 2", "torchrun --no-python --nproc-per-node 2 kiln",
                          "mpirun -n 2 kiln", "srun -n 2 kiln"})
    CHECK_MESSAGE(contains(alone, way), alone);
  CHECK(contains(expect(2, "kiln tune " + one_bucket + " world=4 --ranks 2" + at),
                 "axis 'world' is 4, and the command runs on 2 ranks"));
  CHECK(contains(expect(2, "kiln tune scale rows=64 cols=128 --ranks 2" + e2e::globals(folder)),
                 "--ranks is for ops of a team, and scale is none"));
  CHECK(contains(expect(2, "kiln tune " + one_bucket + " --ranks 2 --device 1" + at), "leave it out"));
  const std::string few = expect(2, two_gpus + "kiln tune " + one_bucket + " --ranks 3" + at);
  CHECK(few == "kiln: --ranks is 3, and this process sees 2 GPUs; give as many ranks as GPUs, or fewer\n");
  const std::string launched = expect(2, "export WORLD_SIZE=2; kiln tune " + one_bucket + " --ranks 2" + at);
  CHECK_MESSAGE(contains(launched, "WORLD_SIZE is 2: a launcher has begun this one of several"), launched);
  CHECK_FALSE(fs::exists(folder / "overlay.kiln"));
}

TEST_CASE("ranks with unlike arguments, or of whom one cannot open a file, all end with the error that rank 0 tells") {
  const TemporaryFolder folder;
  const std::string at = overlay_of(folder);
  const Launched unlike = launch(folder, "tune all_gather rows=$((100 + 400 * RANK)) cols=64 dtype=f32" + at);
  CHECK(unlike.statuses == "2\n2\n");
  CHECK_MESSAGE(contains(unlike.said[0], "the first that differ are all_gather"), unlike.said[0]);
  CHECK(unlike.said[1] == "");
  // Past 256 MiB, sizes decide the team's memory.
  const Launched large = launch(folder, "tune all_gather rows=$((400000 + 400000 * RANK)) cols=64 dtype=f32" + at);
  CHECK(large.statuses == "2\n2\n");
  CHECK_MESSAGE(contains(large.said[0], "the first that differ are all_gather"), large.said[0]);
  CHECK(large.said[1] == "");
  const Launched retuned = launch(folder, "tune " + one_bucket + " $(test $RANK = 1 && echo --force)" + at);
  CHECK(retuned.statuses == "2\n2\n");
  CHECK_MESSAGE(contains(retuned.said[0], "the first that differ are retune all and retune none"), retuned.said[0]);
  std::ofstream(folder / "bad.kiln") << "no file of Kiln's";
  const Launched bad = launch(
      folder, "tune " + one_bucket + " $(test $RANK = 1 && echo --base " + (folder / "bad.kiln").string() + ")" + at);
  CHECK(bad.statuses == "4\n4\n");
  CHECK_MESSAGE(contains(bad.said[0], "rank 1 failed at finding what to tune: a base cannot be used"), bad.said[0]);
  CHECK(bad.said[1] == "");
}

namespace {

/// A command in the background, by a path that no other process was run by.
class Background {
 public:
  Background(const TemporaryFolder& folder, const std::string& words)
      : program_(folder / "kiln"), said_(folder / "said"), status_(folder / "status") {
    fs::create_symlink(KILN_COMMAND, program_);
    expect(0, two_gpus + "{ " + program_.string() + " " + words + " >" + said_.string() + " 2>&1; echo $? >" +
                  status_.string() + "; } </dev/null >/dev/null 2>&1 & true");
  }
  ~Background() { signal_processes(program_, SIGKILL); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void await(const std::string& text) const {
    for (int waits = 0; waits < 1500 && !contains(text_of(said_), text); ++waits) pause_shortly();
    REQUIRE_MESSAGE(contains(text_of(said_), text), text_of(said_));
  }
  /// The process that waits for the ranks, then the ranks.
  [[nodiscard]] std::vector<pid_t> processes() const {
    auto all = processes_of(program_);
    std::ranges::sort(all);
    return all;
  }
  [[nodiscard]] std::string status() const {
    for (int waits = 0; waits < 1500 && text_of(status_).empty(); ++waits) pause_shortly();
    return text_of(status_);
  }
  [[nodiscard]] std::string said() const { return text_of(said_); }

 private:
  static void pause_shortly() { std::this_thread::sleep_for(milliseconds(20)); }
  fs::path program_, said_, status_;
};

}  // namespace

TEST_CASE("a rank that is killed during a tune ends all, with its number and how it ended, and nothing is left") {
  const TemporaryFolder folder;
  const Background command(
      folder,
      "tune all_gather rows=1..512 cols=64 dtype=f32 --strategy exhaustive --json --ranks 2" + overlay_of(folder));
  command.await(R"("event":"candidate")");
  const auto processes = command.processes();
  REQUIRE(processes.size() == 3);
  kill(processes[2], SIGKILL);
  CHECK(command.status() == "5\n");
  const std::string said = command.said();
  CHECK_MESSAGE(contains(said, "rank 1 was ended by signal 9 (Killed)"), said);
  CHECK_MESSAGE(contains(said, "has ended or left the team"), said);
  CHECK(command.processes().empty());
}

TEST_CASE("an interrupt keeps what is finished, and the same command continues") {
  const TemporaryFolder folder;
  const std::string words = "tune all_gather rows=1..8 cols=64 dtype=f32 --json --ranks 2" + overlay_of(folder);
  {
    const Background command(folder, words);
    command.await(R"("event":"finished")");
    const auto processes = command.processes();
    REQUIRE(processes.size() == 3);
    kill(processes[0], SIGTERM);  // a shell's background commands ignore SIGINT
    CHECK(command.status() == "130\n");
    CHECK_MESSAGE(contains(command.said(), "what is done is kept, and the same command continues"), command.said());
    CHECK(command.processes().empty());
  }
  const std::string said = expect(0, two_gpus + "kiln " + words);
  CHECK_MESSAGE(contains(said, R"("outcome":"found","origin":"overlay")"), said);
  CHECK_MESSAGE(contains(said, R"("outcome":"tuned","origin":"overlay")"), said);
}

namespace {

/// Options for an overlay, and for a copy of all_gather whose sources may change.
std::string with_own_ops(const TemporaryFolder& folder) {
  fs::create_directories(folder / "ops");
  fs::copy(fs::path(KILN_SOURCE_DIR) / "templates/all_gather", folder / "ops/all_gather");
  fs::copy(fs::path(KILN_SOURCE_DIR) / "templates/common", folder / "ops/common", fs::copy_options::recursive);
  return overlay_of(folder) + "--templates " + (folder / "ops").string();
}

void change_sources(const TemporaryFolder& folder) {
  std::ofstream(folder / "ops/all_gather/push.cuh", std::ios::app) << "static_assert(true);\n";
}

}  // namespace

TEST_CASE("stale records of a team are left out by a command without ranks, and renewed by one with them") {
  const TemporaryFolder folder;
  const std::string at = with_own_ops(folder);
  expect(0, two_gpus + "kiln tune " + one_bucket + " --ranks 2" + at);
  change_sources(folder);
  const std::string left = expect(0, two_gpus + "kiln tune --stale" + at);
  CHECK_MESSAGE(contains(left, "1 bucket of ops of a team is left out; --ranks N tunes those of N ranks"), left);
  const std::string renewed = expect(0, two_gpus + "kiln tune --stale --ranks 2" + at);
  CHECK_MESSAGE(contains(renewed, "1 of 1 record of this device is stale, 1 renewed"), renewed);
  CHECK(contains(expect(0, two_gpus + "kiln tune --stale all_gather --ranks 2" + at), "0 of 1 record"));
}

TEST_CASE("stale records are those of the link that the ranks have, not of the fastest link in the files") {
  const TemporaryFolder folder;
  const std::string at = with_own_ops(folder);
  expect(0, two_gpus + "kiln tune " + one_bucket + " --ranks 2" + at);
  expect(0, two_gpus_by_pcie + "kiln tune all_gather rows=1000 cols=64 dtype=f32 --ranks 2" + at);
  change_sources(folder);
  const std::string slower = expect(0, two_gpus_by_pcie + "kiln tune --stale --ranks 2" + at);
  CHECK_MESSAGE(contains(slower, "1 of 1 record of this device is stale, 1 renewed"), slower);
  CHECK_MESSAGE(contains(slower, "rows=1024"), slower);
  CHECK_FALSE(contains(slower, "rows=128"));
  const std::string faster = expect(0, two_gpus + "kiln tune --stale --ranks 2" + at);
  CHECK_MESSAGE(contains(faster, "1 of 1 record of this device is stale, 1 renewed"), faster);
  CHECK_MESSAGE(contains(faster, "rows=128"), faster);
}

TEST_CASE("launches that a program's ranks counted are tuned for with --ranks, and left out without") {
  const TemporaryFolder folder;
  const std::string counts = (folder / "counts.kiln").string();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    Options options;
    options.overlay = of.rank == 0 ? fs::path(counts) : fs::path();
    const Rank rank(of, ample, options);
    const Gather one(rank, 100, 100);
    one.set(1);
    for (int launches = 0; launches < 200; ++launches) one.launch(rank);
    rank.machine.synchronize();
    return one.outcome({100, 100}, 1);
  });
  REQUIRE(ranks.outcome(0) == "right");
  REQUIRE(ranks.outcome(1) == "right");
  const std::string words = "kiln prewarm --from-histogram " + counts + overlay_of(folder);
  const std::string left = expect(0, two_gpus + words);
  CHECK_MESSAGE(contains(left, "1 bucket of ops of a team is left out; --ranks N tunes those of N ranks"), left);
  const std::string other = expect(0, "export FAKE_CUDA='devices 3'; " + words + "--ranks 3");
  CHECK_MESSAGE(contains(other, "left out, which is of other numbers of ranks than 3"), other);
  const std::string tuned = expect(0, two_gpus + words + "--ranks 2");
  CHECK_MESSAGE(contains(tuned, "tuned now"), tuned);
  CHECK_MESSAGE(contains(tuned, "1, 1 with a record"), tuned);
}

TEST_CASE("a Tuner without a team refuses an op of one, and with one its ranks tune together") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of);
    const Gather one(rank, 100, 100);
    Options alone;
    alone.overlay = fs::path();
    const Tuner without(alone);
    const Error refused = e2e::error_of([&] { static_cast<void>(without.tune({{{"all_gather", one.problem}}})); });
    if (!holds(refused.what(), "set Options::team on each rank")) return std::string(refused.what());
    const Tuner tuner(*rank.engine);
    std::vector<Demand> demands{{"all_gather", one.problem}};
    const TuneReport report = tuner.tune(demands);
    one.set(3);
    const Origin origin = one.launch(rank);
    rank.machine.synchronize();
    const Error unlike = e2e::error_of([&] {
      if (of.rank == 1) demands.push_back(demands.front()), demands.back().problem.axes[0] = 1000;
      static_cast<void>(tuner.tune(demands));
    });
    return one.outcome({100, 100}, 3) + fmt::format(", {} kept {}, launched by the {}, {} tunes; {}",
                                                    report.buckets.size(), report.buckets.front().kept,
                                                    to_string(origin), rank.engine->stats().tunes, unlike.what());
  });
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, fmt::format("right, 1 kept true, launched by the overlay, {} tunes", rank == 0 ? 1 : 0)),
                  said);
    CHECK_MESSAGE(holds(said, "rank 1 has 2 to tune and rank 0 1"), said);
  }
}
