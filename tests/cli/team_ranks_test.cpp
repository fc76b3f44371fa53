// The ranks of a command on the fake driver: what they find together, and how long they wait for rank 0. The ctest cli_team runs these.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "cli/ranks.hpp"
#include "cli/tuner_commands.hpp"
#include "kiln/error.hpp"
#include "kiln/team.hpp"
#include "team/ranks.hpp"
#include "team/state.hpp"
#include "tune/team_tunes.hpp"

using namespace kiln;
using namespace kiln::cli;
using namespace kiln::test;
using std::chrono::milliseconds;

namespace {

const bool has_no_fake = std::getenv("KILN_CUDA_LIBRARY") == nullptr;

Globals without_files() {
  Globals globals;
  globals.overlay = "";
  globals.quiet = true;
  return globals;
}

OpBucket gather_of(const manifest::Catalogue& ops, std::int64_t rows) {
  const manifest::Op& op = *ops.op("all_gather");
  const std::vector<manifest::Setting> settings = {
      {"rows", std::to_string(rows)}, {"cols", "64"}, {"world", "2"}, {"dtype", "f32"}};
  return {&op, manifest::bucket_of(op, manifest::make_problem(op, settings))};
}

/// Counts up in all processes that are forked while it lives.
class SharedCount {
 public:
  SharedCount() {
    void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    count_ = new (memory) std::atomic<int>(0);
  }
  ~SharedCount() { munmap(count_, sizeof(std::atomic<int>)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  [[nodiscard]] int next() const { return (*count_)++; }

 private:
  std::atomic<int>* count_;
};

/// A team whose collectives wait for 100 ms from now on.
std::shared_ptr<Team> impatient_team(const team::Membership& of) {
  auto team = std::make_shared<Team>(of.rank, of.world, of.name, TeamOptions{0, 4096, ample});
  team::state_of(*team).rendezvous.set_timeout(milliseconds(100));
  return team;
}

void wait_on_rank_0(const team::Membership& of) {
  if (of.rank == 0) std::this_thread::sleep_for(milliseconds(500));
}

}  // namespace

TEST_CASE("the ranks of a command tune what rank 0 read, whatever the others would have read" *
          doctest::skip(has_no_fake)) {
  for (const bool finds_on_rank_0 : {true, false}) {
    CAPTURE(finds_on_rank_0);
    const SharedCount reads;
    Ranks ranks;
    ranks.begin([&] {
      setenv("FAKE_CUDA", "devices 2", 1);
      const manifest::Catalogue ops({});
      const Globals globals = without_files();
      Options options = engine_options(globals);
      options.search.trials = 1;
      const auto find = [&](const Globals&, const manifest::DeviceFacts&) {
        return std::vector<OpBucket>{gather_of(ops, 100 + 1000 * reads.next())};
      };
      const auto lead = [&](const Options& chosen, std::span<const OpBucket> buckets) {
        const TuneReport report = tune_with_progress(globals, make_tuner(globals, "", chosen), ops, buckets, {});
        return report.buckets.size() == 1 && report.buckets.front().outcome == TunedBucket::Outcome::tuned ? 0 : 1;
      };
      const int status = on_ranks(
          globals, 2, {.ops = ops, .options = options, .find = find, .finds_on_rank_0 = finds_on_rank_0, .lead = lead});
      return fmt::format("{} ", status);
    });
    const std::string said = ranks.outcome(0);  // of the two ranks, and of the process that began them
    CHECK(reads.next() == (finds_on_rank_0 ? 1 : 2));
    if (finds_on_rank_0)
      CHECK(said == "0 0 0 ");
    else
      CHECK_MESSAGE(holds(said, "the first that differ are all_gather"), said);
  }
}

TEST_CASE("ranks wait for rank 0 for longer than a collective's time-out while it opens its devices" *
          doctest::skip(has_no_fake)) {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Globals globals = without_files();
    Options options = engine_options(globals);
    options.team = impatient_team(of);
    make_tuner(globals, "", options, [&](const TunerOn&) { wait_on_rank_0(of); });
    return std::string("made");
  });
  for (const std::size_t rank : {0U, 1U}) CHECK(ranks.outcome(rank) == "made");
}

TEST_CASE("ranks wait for rank 0 for longer than a collective's time-out while it sorts what to tune" *
          doctest::skip(has_no_fake)) {
  const manifest::Catalogue ops({});
  const std::vector<OpBucket> buckets{gather_of(ops, 100)};
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    const auto team = impatient_team(of);
    team::TeamState& state = team::state_of(*team);
    wait_on_rank_0(of);
    const manifest::DeviceFacts device = state.facts();
    tune::require_same_tunes(state.rendezvous, manifest::buckets_on(buckets, device), Retune::none);
    return fmt::format("alike, {} ms", state.rendezvous.timeout().count());
  });
  for (const std::size_t rank : {0U, 1U}) CHECK(ranks.outcome(rank) == "alike, 100 ms");
}
