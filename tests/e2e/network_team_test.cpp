// Ranks that met at an address, as those of several hosts do: what NCCL serves, how it is tuned, and what is refused.
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "e2e/command.hpp"
#include "e2e/team_fixture.hpp"
#include "fake_nccl/control.hpp"
#include "manifest/limits.hpp"
#include "team/network.hpp"
#include "team/state.hpp"
#include "team/two_hosts.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace e2e_team;
using e2e::control;
using e2e::query;
using std::chrono::milliseconds;

namespace {

constexpr std::int64_t rows = 50;

TeamOptions meeting_at(const std::string& address) {
  TeamOptions options{0, team_bytes, ample};
  options.address = address;
  return options;
}

/// y = the sum of x over the ranks, in f32.
class Sum {
 public:
  explicit Sum(const Rank& of, const char* ranks = "alike")
      : op(of.engine->op("all_reduce")),
        problem(op.problem(
            {{"rows", rows}, {"cols", cols}, {"world", of.team->world()}, {"dtype", "f32"}, {"ranks", ranks}})),
        rank_(of.team->rank()),
        world_(of.team->world()),
        x_(static_cast<std::size_t>(rows * cols)),
        y_(static_cast<std::size_t>(rows * cols)),
        arguments_(op.arguments({{"x", x_.address()}, {"y", y_.address()}})) {}

  void launch(const Rank& of) const { op.launch(problem, arguments_, of.machine.stream()); }
  [[nodiscard]] std::string served(const Rank& of, float step) const {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank_, i, step);
    x_.upload(values);
    y_.upload(std::vector<float>(values.size(), 0));
    const std::int64_t before = query("launches vendor_collective<all_reduce>");
    launch(of);
    of.machine.synchronize();
    const std::vector<float> got = y_.download();
    for (std::size_t i = 0; i < got.size(); ++i) {
      float expected = 0;
      for (int rank = 0; rank < world_; ++rank) expected += value(rank, i, step);
      if (got[i] != expected) return fmt::format("element {} is {}, not {}", i, got[i], expected);
    }
    return query("launches vendor_collective<all_reduce>") > before ? "right by nccl" : "right";
  }

  Op op;
  Problem problem;

 private:
  static float value(int rank, std::size_t i, float step) {
    return static_cast<float>(10 * rank) + static_cast<float>(i % 251) + 1000 * step;
  }
  int rank_, world_;
  e2e::Floats x_, y_;
  Arguments arguments_;
};

/// Returns once the rank has noticed, 10 s at most.
void break_nccl(const team::Member& member) {
  void* library = dlopen(std::getenv("KILN_NCCL_LIBRARY"), RTLD_NOW);
  auto* const fail = reinterpret_cast<decltype(&fake_nccl_fail)>(dlsym(library, "fake_nccl_fail"));
  member.nccl()->enqueue([&](const auto&, ncclComm_t handle) {
    fail(handle, ncclSystemError);
    return ncclSuccess;
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!member.has_fault() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
}

std::string told(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
  return "no error";
}

}  // namespace

TEST_CASE("ranks at an address that take fallbacks are served by NCCL without a record, also past what kernels reach") {
  for (const int world : {2, manifest::most_kernel_ranks + 1}) {
    CAPTURE(world);
    const std::string address = free_address();
    Ranks ranks;
    ranks.begin_all(world, [&](const team::Membership& of) {
      Options options;
      options.on_miss = MissPolicy::nearest;
      const Rank rank(of, meeting_at(address), options);
      const Sum one(rank);
      return one.served(rank, 1) + fmt::format(", {} tunes", rank.engine->stats().tunes);
    });
    for (int rank = 0; rank < world; ++rank)
      CHECK(ranks.outcome(static_cast<std::size_t>(rank)) == "right by nccl, 0 tunes");
  }
}

TEST_CASE("ranks at an address tune NCCL's all-reduce together, keep the record and serve by it") {
  const e2e::TemporaryFolder folder;
  for (const bool is_tuned : {false, true}) {
    CAPTURE(is_tuned);
    const std::string address = free_address();
    Ranks ranks;
    ranks.begin_all(3, [&](const team::Membership& of) {
      Options options;
      if (of.rank == 0) options.overlay = folder / "overlay.kiln";
      const Rank rank(of, meeting_at(address), options);
      const Sum one(rank);
      const std::string said = one.served(rank, 1) + ", " + one.served(rank, 2);
      const Explanation explained = rank.engine->explain(one.op, one.problem);
      rank.team->close();
      return fmt::format("{}; {} of {}, {} tunes, {} mappings, {}", said, explained.implementation, explained.library,
                         rank.engine->stats().tunes, query("mappings"),
                         holds(explained.key, "/network") ? "network" : explained.key);
    });
    for (std::size_t rank = 0; rank < 3; ++rank)
      CHECK(ranks.outcome(rank) == fmt::format("right by nccl, right by nccl; nccl of nccl 2.28.9, {} tunes, 0 "
                                               "mappings, network",
                                               rank == 0 && !is_tuned ? 1 : 0));
  }
}

TEST_CASE("ranks at an address tune a product before NCCL's all-reduce, and share its machine code") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    REQUIRE(e2e::driver_call<unsigned>("cuInit", 0U) == 0);
    control("sm 80");  // whose kernel has a twin
    const Rank rank(of, meeting_at(address));
    const Op op = rank.engine->op("gemm_all_reduce");
    const Problem problem =
        op.problem({{"rows", 16}, {"n", 64}, {"k", 64}, {"world", 2}, {"dtype", "bf16"}, {"ranks", "alike"}});
    rank.engine->prepare(op, std::vector<Problem>{problem});
    const Plan plan = op.plan(problem);
    const Explanation explained = rank.engine->explain(op, problem);
    const std::int64_t compiles = of.rank == 0 ? 0 : rank.engine->stats().compiles;
    rank.team->close();
    return fmt::format("{}, {}, {} compiles", plan.implementation(), explained.passes.back(), compiles);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "nccl_"), said);
    CHECK_MESSAGE(holds(said, ", ncclAllReduce, 0 compiles"), said);
  }
}

TEST_CASE("what NCCL does not serve is refused for ranks at an address, on all alike, and the team goes on") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    const Rank rank(of, meeting_at(address));
    const Sum any(rank, "any"), alike(rank);
    std::string said = told([&] { any.launch(rank); });
    const Explanation explained = rank.engine->explain(any.op, any.problem);
    said += "; explained: " + explained.why;
    const Op attention = rank.engine->op("attention_context");
    const Problem problem = attention.problem({{"batch", 1},
                                               {"rows", 64},
                                               {"heads", 1},
                                               {"key_heads", 1},
                                               {"head_dim", 64},
                                               {"value_dim", 64},
                                               {"world", 2},
                                               {"dtype", "bf16"},
                                               {"mask", "none"}});
    said += "; " + told([&] { static_cast<void>(attention.plan(problem)); });
    return said + "; " + alike.served(rank, 1);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "bad_input: team"), said);
    CHECK_MESSAGE(holds(said, "'nccl' of all_reduce does not serve: it requires ranks == \"alike\""), said);
    CHECK_MESSAGE(holds(said, "A problem with ranks = \"alike\" promises that all ranks launch alike"), said);
    CHECK_MESSAGE(holds(said.substr(said.find("explained: ")), "speak through NCCL alone"), said);
    CHECK_MESSAGE(holds(said, "attention_context has no implementation by it; launch it in a team of one host"), said);
    CHECK_MESSAGE(said.ends_with("; right by nccl"), said);
  }
}

TEST_CASE("rows that lie apart, which NCCL does not take, are an error of ranks at an address") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    const Rank rank(of, meeting_at(address));
    const Gather dense(rank, rows, rows, "alike"), apart(rank, rows, 128, "alike");
    dense.set(1);
    dense.launch(rank);
    rank.machine.synchronize();
    return dense.outcome({rows, rows}, 1) + "; " + told([&] { apart.launch(rank); });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("right; "), said);
    CHECK_MESSAGE(holds(said, "rank_stride"), said);
  }
}

TEST_CASE("without NCCL on one rank, all ranks at an address say which") {
  for (const char* each : {"KILN_NCCL_LIBRARY=none", "FAKE_NCCL_FAILS=1"}) {
    std::string variable = each;
    CAPTURE(variable);
    const std::string address = free_address();
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      if (of.rank == 1) putenv(variable.data());
      const Rank rank(of, meeting_at(address));
      const Sum one(rank);
      return told([&] { one.launch(rank); });
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(said.starts_with("no_nccl: team"), said);
      CHECK_MESSAGE(holds(said, "met at an address and speaks through NCCL alone"), said);
      CHECK_MESSAGE(holds(said, variable.starts_with("FAKE") ? "rank 1" : "rank 1 has none"), said);
    }
  }
}

TEST_CASE("a rank at an address that dies in a collective, or after it, ends the others' launches and is told of") {
  for (const bool is_within : {true, false}) {
    CAPTURE(is_within);
    const std::string address = free_address();
    Ranks ranks;
    ranks.begin_all(3, [&](const team::Membership& of) {
      TeamOptions options = meeting_at(address);
      options.timeout = milliseconds(60'000);
      const Rank rank(of, options);
      const Sum one(rank);
      const std::string said = one.served(rank, 1);
      Ranks::say('r');
      while (of.rank == 1) pause();
      if (is_within) one.launch(rank);  // rank 1 never comes
      rank.machine.synchronize();
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
      std::string checked = "no error";
      while (checked == "no error" && std::chrono::steady_clock::now() < end) try {
          static_cast<void>(rank.engine->check(rank.machine.stream()));
          std::this_thread::sleep_for(milliseconds(1));
        } catch (const Error& error) {
          checked = std::string(to_string(error.kind()));
        }
      return said + "; " + checked + "; " + told([&] { one.launch(rank); });
    });
    for (std::size_t rank = 0; rank < 3; ++rank) ranks.await(rank, 'r');
    std::this_thread::sleep_for(milliseconds(300));
    const auto begun = std::chrono::steady_clock::now();
    ranks.kill(1);
    for (const std::size_t rank : {0U, 2U}) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(said.starts_with("right by nccl; team_failed; team_failed: "), said);
      CHECK_MESSAGE(holds(said, "ended NCCL's collectives, since a rank has ended"), said);
    }
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
  }
}

TEST_CASE("an error that NCCL meets on its own ends its rank's launches at an address, and then those of the others") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    TeamOptions options = meeting_at(address);
    options.timeout = milliseconds(60'000);
    const Rank rank(of, options);
    const Sum one(rank);
    const std::string said = one.served(rank, 1) + "; ";
    if (of.rank == 0)
      break_nccl(*team::state_of(*rank.team).member);
    else
      one.launch(rank);
    rank.machine.synchronize();
    return said + told([&] { one.launch(rank); });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("right by nccl; team_failed: "), said);
    CHECK_MESSAGE(holds(said, rank == 0 ? "since NCCL met an error" : "since a rank has ended"), said);
  }
}

TEST_CASE(
    "ranks on two hosts meet though the address of rank 0's host means another interface on each, and NCCL serves") {
  const TwoHosts hosts;
  if (!hosts.are_there()) {
    MESSAGE("skipped: this machine lets the test make no network namespaces");
    return;
  }
  const std::string port = std::to_string(free_port());
  Ranks ranks;
  ranks.begin_all(4, [&](const team::Membership& of) {
    if (!hosts.enter(of.rank < 2 ? 'a' : 'b')) return std::string("cannot enter");
    const std::string host = of.rank == 0 ? "0.0.0.0" : of.rank == 1 ? "127.0.0.1" : hosts.address('a');
    const Rank rank(of, meeting_at(host + ":" + port));
    const Sum one(rank);
    const std::string said = one.served(rank, 1) + ", " + one.served(rank, 2);
    Ranks::say('r');
    while (of.rank == 3) pause();
    return said + "; " + told([&] { rank.team->close(); });
  });
  for (std::size_t rank = 0; rank < 4; ++rank) ranks.await(rank, 'r');
  ranks.kill(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("right by nccl, right by nccl; team_failed: "), said);
    CHECK_MESSAGE(holds(said, "rank 3 has ended or left the team"), said);
  }
}

TEST_CASE("the command tunes on torchrun's ranks of two hosts by KILN_TEAM_ADDRESS, and rank 0 keeps the record") {
  const e2e::TemporaryFolder folder;
  const std::string at = (folder / "rank").string();
  const std::string statuses = e2e::expect(
      0, "export FAKE_CUDA='devices 2' KILN_TEAM_ADDRESS=" + free_address() +
             " WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 TORCHELASTIC_RUN_ID='" + unique_name() +
             "'; for RANK in 0 1; do export RANK; { kiln tune all_reduce rows=50 cols=64 dtype=f32 ranks=alike "
             "--overlay " +
             (folder / "overlay").string() + "$RANK.kiln >" + at + "$RANK 2>&1; echo $? >" + at +
             "status$RANK; } & done; wait; cat " + at + "status0 " + at + "status1");
  std::ifstream file(at + "0");
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  CHECK_MESSAGE(statuses == "0\n0\n", said);
  CHECK_FALSE(std::filesystem::exists(folder / "overlay1.kiln"));
  const std::string records = e2e::expect(0, "kiln cache ls " + (folder / "overlay0.kiln").string());
  CHECK_MESSAGE(holds(records, "all_reduce"), records);
  const std::string asked = "FAKE_CUDA='devices 2' kiln explain all_reduce cols=64 world=2 dtype=f32 --overlay " +
                            (folder / "overlay0.kiln").string();
  const std::string hit = e2e::expect(0, asked + " rows=50 ranks=alike");
  CHECK_MESSAGE(holds(hit, "nccl"), hit);
  const std::string miss = e2e::shell(asked + " rows=5000 ranks=alike").output;
  CHECK_MESSAGE(holds(miss, "KILN_TEAM_ADDRESS=HOST:PORT kiln tune all_reduce"), miss);
  CHECK_MESSAGE(holds(miss, "by a launcher that starts the command on each rank, and keep it in the overlay"), miss);
  const std::string refused = e2e::shell(asked + " rows=50").output;
  CHECK_MESSAGE(holds(refused, "speak through NCCL alone"), refused);
}
