// Machine code of a team's record: one file that has it spares all ranks the compile.
#include "e2e/command.hpp"
#include "e2e/team_fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace e2e_team;

namespace {

/// A record that `world` ranks tuned, in a file with machine code and in one without.
struct Shipped {
  explicit Shipped(int world) : with_code(folder / "base.kiln"), without_code(folder / "records.kiln") {
    Ranks ranks;
    ranks.begin_all(world, [&](const team::Membership& of) {
      Options options;
      if (of.rank == 0) options.overlay = with_code;
      const Rank rank(of, ample, options);
      const Gather one(rank, 100, 100);
      one.set(1);
      one.launch(rank);
      rank.machine.synchronize();
      return one.outcome(std::vector<std::int64_t>(static_cast<std::size_t>(world), 100), 1);
    });
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(world); ++rank) REQUIRE(ranks.outcome(rank) == "right");
    e2e::expect(0, "kiln cache export " + with_code.string() + " --no-cubins -o " + without_code.string());
  }

  e2e::TemporaryFolder folder;
  std::filesystem::path with_code, without_code;
};

/// Takes the NVRTC behind the one that remembers compiles: another library, so another compiler.
void take_other_nvrtc() {
  const char* real = std::getenv("NVRTC_ONCE_REAL");
  if (real != nullptr && *real != '\0')
    setenv("KILN_NVRTC_LIBRARY", real, 1);
  else
    unsetenv("KILN_NVRTC_LIBRARY");
}

/// What a rank did whose only file is `base`, or that has none.
std::string served_from(const team::Membership& of, const std::filesystem::path& base) {
  Options options;
  options.on_miss = MissPolicy::error;
  if (!base.empty()) options.bases = {base};
  const Rank rank(of, ample, options);
  const Gather one(rank, 70, 100);
  one.set(2);
  one.launch(rank);
  rank.machine.synchronize();
  const Stats stats = rank.engine->stats();
  const Explanation explained = rank.engine->explain(one.op, one.problem);
  const bool is_other = explained.compiler != explained.nvrtc;
  return one.outcome(std::vector<std::int64_t>(static_cast<std::size_t>(of.world), 70), 2) +
         fmt::format(", {} compiles, {} without code{}", stats.compiles, stats.misses.no_cubin,
                     is_other ? ", by another NVRTC" : "");
}

}  // namespace

TEST_CASE("ranks that have a record and lack its machine code take it from the one that has it") {
  const Shipped shipped(3);
  Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& of) {
    return served_from(of, of.rank == 1 ? shipped.with_code : shipped.without_code);
  });
  CHECK(ranks.outcome(0) == "right, 0 compiles, 1 without code");
  CHECK(ranks.outcome(1) == "right, 0 compiles, 0 without code");
  CHECK(ranks.outcome(2) == "right, 0 compiles, 1 without code");
}

TEST_CASE("ranks of different NVRTCs run the machine code that one of them has") {
  const Shipped shipped(2);
  for (const int with_code : {0, 1}) {
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      if (of.rank == 1) take_other_nvrtc();
      return served_from(of, of.rank == with_code ? shipped.with_code : shipped.without_code);
    });
    CHECK(ranks.outcome(0) == fmt::format("right, 0 compiles, {} without code", with_code));
    CHECK(ranks.outcome(1) == fmt::format("right, 0 compiles, {} without code, by another NVRTC", 1 - with_code));
  }
}

TEST_CASE("a record serves teams of its own kind of link alone, and is shown with it") {
  const Shipped shipped(2);
  const std::string shown = e2e::expect(0, "kiln cache show all_gather@ --file " + shipped.with_code.string());
  CHECK_MESSAGE(holds(shown, "/local"), shown);
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    { const e2e::Machine opened; }
    e2e::control(fmt::format("hidden {}", of.rank));  // the ranks no longer are on one device
    return served_from(of, shipped.with_code);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "no rank has a record for all_gather"), said);
    CHECK_MESSAGE(holds(said, "/unseen | "), said);
  }
}

TEST_CASE("ranks that share an overlay leave the candidates of their tune in it") {
  const e2e::TemporaryFolder folder;
  const auto overlay = folder / "shared.kiln";
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    Options options;
    options.overlay = overlay;
    const Rank rank(of, ample, options);
    const Gather one(rank, 100, 100);
    one.set(1);
    one.launch(rank);
    rank.machine.synchronize();
    return one.outcome({100, 100}, 1);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(ranks.outcome(rank) == "right");
  const std::string shown = e2e::expect(0, "kiln cache show all_gather@ --file " + overlay.string());
  CHECK_MESSAGE(holds(shown, "the fastest at the upper edge first"), shown);
}

TEST_CASE("machine code that no rank has is compiled by one of them") {
  const Shipped shipped(2);
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) { return served_from(of, shipped.without_code); });
  CHECK(ranks.outcome(0) == "right, 1 compiles, 1 without code");
  CHECK(ranks.outcome(1) == "right, 0 compiles, 1 without code");
}
