#include "plan/histogram.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "manifest/problem.hpp"
#include "plan/histogram_keeper.hpp"

using kiln::Problem;
using kiln::plan::Histogram;
using kiln::plan::HistogramKeeper;

namespace {

Problem rows(std::int64_t count) {
  Problem problem;
  problem.axes[0] = count;
  return problem;
}

std::int64_t sum(const std::vector<Histogram::Row>& counted) {
  std::int64_t launches = 0;
  for (const Histogram::Row& row : counted) launches += row.launches;
  return launches;
}

/// An op whose axis is bucketed, and a file in memory.
struct Kept {
  std::vector<kiln::manifest::Op> ops = kiln::manifest::load_ops({});
  std::unique_ptr<kiln::store::File> file = kiln::store::File::in_memory();
  std::uint32_t op = 0;

  Kept() {
    while (ops[op].name != "rms_norm") ++op;
  }
  [[nodiscard]] Problem problem(std::int64_t length) const {
    return kiln::manifest::make_problem(
        ops[op],
        std::vector<kiln::manifest::Setting>{{"rows", std::to_string(length)}, {"cols", "4096"}, {"dtype", "bf16"}});
  }
};

}  // namespace

TEST_CASE("launches that come in a rhythm are sampled in their true proportions") {
  for (std::int64_t period = 1; period <= 96; ++period) {
    std::vector<std::int64_t> sampled(static_cast<std::size_t>(period), 0);
    constexpr std::int64_t turns = 4000;
    for (std::int64_t launch = 0; launch < turns * period; ++launch)
      if (Histogram::is_sample(launch)) sampled[static_cast<std::size_t>(launch % period)] += Histogram::stride;
    for (const std::int64_t estimate : sampled) {
      CAPTURE(period);
      CHECK(estimate == doctest::Approx(turns).epsilon(0.12));
    }
  }
}

TEST_CASE("a problem's launches are summed, an op's apart from another's, and taken once") {
  Histogram histogram;
  for (int i = 0; i < 3; ++i) histogram.add(0, rows(7));
  histogram.add(1, rows(7));
  histogram.add(0, rows(8));
  const auto taken = histogram.take();
  REQUIRE(taken.size() == 3);
  for (const Histogram::Row& row : taken)
    CHECK(row.launches == (row.op == 0 && row.problem == rows(7) ? 3 : 1) * Histogram::stride);
  CHECK(histogram.take().empty());
  histogram.add(0, rows(7));
  CHECK(sum(histogram.take()) == Histogram::stride);
}

TEST_CASE("what a full histogram has no room for is counted as lost, and there is room again after a take") {
  Histogram histogram;
  constexpr auto many = static_cast<std::int64_t>(2 * Histogram::capacity);
  for (std::int64_t i = 1; i <= many; ++i) histogram.add(0, rows(i));
  CHECK(histogram.is_half_full());
  CHECK(histogram.lost() > 0);
  const std::int64_t taken = sum(histogram.take());
  CHECK(taken + histogram.lost() == many * Histogram::stride);
  CHECK_FALSE(histogram.is_half_full());
  histogram.add(0, rows(many));
  CHECK(sum(histogram.take()) == Histogram::stride);
}

TEST_CASE("threads that count while another takes lose nothing") {
  Histogram histogram;
  constexpr std::int64_t each = 20'000;
  std::atomic<int> running = 4;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (std::int64_t i = 0; i < each; ++i) histogram.add(static_cast<std::uint32_t>(thread % 2), rows(1 + i % 37));
      --running;
    });
  std::map<std::pair<std::uint32_t, std::int64_t>, std::int64_t> counted;
  const auto take = [&] {
    for (const Histogram::Row& row : histogram.take()) counted[{row.op, row.problem.axes[0]}] += row.launches;
  };
  while (running > 0) take();
  threads.clear();
  take();
  std::int64_t all = 0;
  for (const auto& [problem, launches] : counted) all += launches;
  CHECK(all == 4 * each * Histogram::stride);
  CHECK(counted.size() == 74);
  CHECK(histogram.lost() == 0);
}

TEST_CASE("the keeper adds counts to the file by real problem, by its thread and at its end") {
  const Kept kept;
  {
    HistogramKeeper keeper(kept.ops, *kept.file, {std::chrono::milliseconds(1), std::chrono::milliseconds(1)});
    keeper.start();
    keeper.histogram.add(kept.op, kept.problem(100));
    while (kept.file->histogram().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  {
    HistogramKeeper keeper(kept.ops, *kept.file);
    keeper.histogram.add(kept.op, kept.problem(100));
    keeper.histogram.add(kept.op, kept.problem(101));
  }
  const auto counted = kept.file->histogram();
  REQUIRE(counted.size() == 2);
  CHECK(counted[0].op == "rms_norm");
  CHECK(counted[0].problem == "rows=100 cols=4096 dtype=bf16 residual=none quantise=none");
  CHECK(counted[0].launches == 2 * Histogram::stride);
  CHECK(counted[1].launches == Histogram::stride);
}

TEST_CASE("a file that holds very many problems counts further ones at their buckets' edges") {
  const Kept kept;
  std::vector<kiln::store::HistogramRow> many;
  for (int i = 0; i < 20'000; ++i) many.push_back({"other", "rows=" + std::to_string(i), 1});
  kept.file->add_to_histogram(many);
  HistogramKeeper keeper(kept.ops, *kept.file);
  keeper.histogram.add(kept.op, kept.problem(7));
  keeper.flush();
  keeper.histogram.add(kept.op, kept.problem(100));
  keeper.histogram.add(kept.op, kept.problem(101));
  keeper.flush();
  std::map<std::string, std::int64_t> counted;
  for (const auto& row : kept.file->histogram())
    if (row.op == "rms_norm") counted[row.problem] = row.launches;
  CHECK(counted.size() == 2);
  CHECK(counted["rows=128 cols=4096 dtype=bf16 residual=none quantise=none"] == 2 * Histogram::stride);
}

TEST_CASE("counts that the file cannot take now are kept for the next time") {
  const Kept kept;
  std::string folder = (std::filesystem::temp_directory_path() / "kiln-histogram-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const auto path = std::filesystem::path(folder) / "a.kiln";
  (void)kiln::store::File::open(path, kiln::store::Access::read_write);
  {
    const auto closed = kiln::store::File::open(path, kiln::store::Access::read_only);
    HistogramKeeper keeper(kept.ops, *closed);
    keeper.histogram.add(kept.op, kept.problem(100));
    keeper.flush();
    keeper.flush();
    CHECK(keeper.lost() == 0);
  }
  std::filesystem::remove_all(folder);
}
