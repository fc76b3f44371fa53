// NCCL beside kernels, before or after them: tuned with their parameters, kept with their machine code, and done without.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "e2e/team_fixture.hpp"
#include "team/network.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace e2e_team;
using e2e::control;
using e2e::query;

namespace {

constexpr std::int64_t rows = 50;

Options with_ops(const std::filesystem::path& file = {}) {
  Options options;
  options.template_paths = e2e::test_ops();
  if (!file.empty()) options.bases = {file};
  return options;
}

/// y = twice the rows of all ranks.
class Doubled {
 public:
  explicit Doubled(const Rank& of, const char* ranks = "alike")
      : op(of.engine->op("doubled_gather")),
        problem(op.problem({{"rows", rows}, {"cols", cols}, {"world", of.team->world()}, {"ranks", ranks}})),
        rank_(of.team->rank()),
        world_(of.team->world()),
        x_(static_cast<std::size_t>(rows * cols)),
        y_(static_cast<std::size_t>(world_ * rows * cols)),
        arguments_(op.arguments({{"x", x_.address()}, {"y", y_.address()}})) {}

  void set(float step) const {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank_, i, step);
    x_.upload(values);
    y_.upload(std::vector<float>(static_cast<std::size_t>(world_ * rows * cols), 0));
  }
  [[nodiscard]] std::string outcome(float step) const {
    const std::vector<float> got = y_.download();
    constexpr auto part = static_cast<std::size_t>(rows * cols);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != 2 * value(static_cast<int>(i / part), i % part, step))
        return fmt::format("element {} is {}", i, got[i]);
    return "right";
  }
  void launch(const Rank& of) const { op.launch(problem, arguments_, of.machine.stream()); }

  /// Launches twice with other values.
  [[nodiscard]] std::string served(const Rank& of) const {
    std::string said;
    for (const float step : {1.0F, 2.0F}) {
      set(step);
      launch(of);
      of.machine.synchronize();
      said += outcome(step) + " ";
    }
    const Plan plan = op.plan(problem);
    return said + fmt::format("{} {}", plan.implementation(), plan.config());
  }

  Op op;
  Problem problem;

 private:
  static float value(int rank, std::size_t i, float step) {
    return static_cast<float>(1000 * rank) + static_cast<float>(i % 251) + 10000 * step;
  }
  int rank_, world_;
  e2e::Floats x_, y_;
  Arguments arguments_;
};

void slow_own_exchange() { control("kernel slow 100 all_gather_push"); }

/// A file with a record that NCCL beside a kernel won.
std::string tune_into(const e2e::TemporaryFolder& folder) {
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    Options options = with_ops();
    if (of.rank == 0) options.overlay = folder / "base.kiln";
    const Rank rank(of, ample, options);
    slow_own_exchange();
    return Doubled(rank).served(rank);
  });
  const std::string first = ranks.outcome(0);
  CHECK(ranks.outcome(1) == first);
  return first;
}

}  // namespace

TEST_CASE("a kernel beside NCCL is tuned with its parameter, before or after the collective") {
  const e2e::TemporaryFolder folder;
  const std::string said = tune_into(folder);
  const bool is_right = said == "right right nccl threads=64" || said == "right right nccl_first threads=64";
  CHECK_MESSAGE(is_right, said);
}

TEST_CASE(
    "a record of a kernel beside NCCL comes with its machine code, and serves without NCCL where a rank lacks it") {
  const e2e::TemporaryFolder folder;
  const std::string tuned = tune_into(folder);
  for (const bool is_missing : {false, true}) {
    CAPTURE(is_missing);
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& of) {
      if (of.rank == 1 && is_missing) setenv("KILN_NCCL_LIBRARY", "none", 1);
      Options options = of.rank == 0 ? with_ops(folder / "base.kiln") : with_ops();
      options.on_miss = MissPolicy::error;
      const Rank rank(of, ample, options);
      const std::string said = Doubled(rank).served(rank);
      return said + fmt::format(", {} compiles, {} stale", rank.engine->stats().compiles, rank.engine->stats().stale);
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(said.starts_with(is_missing ? "right right push threads=" : tuned), said);
      CHECK_MESSAGE(said.ends_with(", 0 compiles, 0 stale"), said);
    }
  }
}

TEST_CASE("a team of more ranks than kernels reach by their memory is served by NCCL, where they met at an address") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(9, [&](const team::Membership& of) {
    TeamOptions options{0, team_bytes, ample};
    options.address = address;
    const Rank rank(of, options, with_ops());
    return Doubled(rank).served(rank);
  });
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(said.starts_with("right right nccl"), said);
  for (std::size_t rank = 1; rank < 9; ++rank) CHECK(ranks.outcome(rank) == said);
}

TEST_CASE("a candidate that one rank alone cannot load is launched on none, where others would wait in NCCL") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, ample, with_ops());
    slow_own_exchange();
    if (of.rank == 1) control("module CUDA_ERROR_NO_BINARY_FOR_GPU doubled_rows<64>");
    return Doubled(rank).served(rank);
  });
  const std::string said = ranks.outcome(0);
  CHECK(ranks.outcome(1) == said);
  const bool is_other = said == "right right nccl threads=128" || said == "right right nccl_first threads=128";
  CHECK_MESSAGE(is_other, said);
}

TEST_CASE("kernels beside NCCL are not tried for ranks that may launch unequal rows") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& of) {
    const Rank rank(of, ample, with_ops());
    slow_own_exchange();
    const std::int64_t before = query("launches vendor_collective");
    const std::string said = Doubled(rank, "any").served(rank);
    return said + fmt::format(", {} of NCCL", query("launches vendor_collective") - before);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE((said.starts_with("right right push threads=") && said.ends_with(", 0 of NCCL")), said);
  }
}

TEST_CASE("a captured graph replays a kernel and NCCL's collective, and explain names both") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& of) {
    const Rank rank(of, ample, with_ops());
    slow_own_exchange();
    const Doubled one(rank);
    std::string said = one.served(rank).substr(0, 11);
    const e2e::Graph graph(rank.machine, e2e::Graph::relaxed, [&] { one.launch(rank); });
    for (int step = 3; step < 5; ++step) {
      one.set(static_cast<float>(step));
      graph.replay();
      rank.machine.synchronize();
      said += "; " + one.outcome(static_cast<float>(step));
    }
    const Explanation explained = rank.engine->explain(one.op, one.problem);
    const bool is_first = explained.implementation == "nccl_first";
    const bool is_told = explained.passes.size() == 2 && explained.passes[is_first ? 0 : 1] == "ncclAllGather" &&
                         holds(explained.passes[is_first ? 1 : 0], "doubled_rows<64>") && explained.cubin_found &&
                         explained.library == "nccl 2.28.9";
    rank.team->close();
    return said + (is_told ? "; told" : "; " + explained.passes.front());
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "right right; right; right; told");
}

namespace {

void replace(std::string& text, const std::string& part, const std::string& by) {
  const std::size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  text.replace(at, part.size(), by);
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A copy of the op without its other implementation by NCCL, where this one alone has kernels of 256 threads.
Options with_collective_first(const e2e::TemporaryFolder& folder) {
  const auto own = folder / "doubled_gather";
  std::filesystem::copy(e2e::test_ops().front() / "doubled_gather", own);
  std::filesystem::remove(own / "nccl.toml");
  std::string op = text_of(own / "op.toml"), first = text_of(own / "nccl_first.toml");
  replace(op, "\"nccl\", ", "");
  replace(first, "[128, 64]", "[256]");
  replace(first, "threads = 128", "threads = 256");
  std::ofstream(own / "op.toml") << op;
  std::ofstream(own / "nccl_first.toml") << first;
  Options options;
  options.template_paths = {folder / ""};
  return options;
}

}  // namespace

TEST_CASE("a kernel that the driver refuses behind NCCL's collective is an error of its rank, which tries no other") {
  const e2e::TemporaryFolder folder;
  const Options options = with_collective_first(folder);
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& of) {
    const Rank rank(of, ample, options);
    slow_own_exchange();
    const Doubled one(rank);
    std::string said = one.served(rank);
    one.set(3);
    if (of.rank == 1) control("launch CUDA_ERROR_NOT_SUPPORTED doubled_rows<256");
    const std::int64_t pushed = query("launches all_gather_push");
    try {
      one.launch(rank);
      rank.machine.synchronize();
      said += ", " + one.outcome(3);
    } catch (const Error& error) {
      said += fmt::format(", {}", to_string(error.kind()));
    }
    rank.machine.synchronize();
    return fmt::format("{}, {} pushes", said, query("launches all_gather_push") - pushed);
  });
  CHECK(ranks.outcome(0) == "right right nccl_first threads=256, right, 0 pushes");
  CHECK(ranks.outcome(1) == "right right nccl_first threads=256, driver_failed, 0 pushes");
}
