// What becomes of a team whose ranks come late or are killed, and of counts that differ, on the GPUs of one host.
//
//   bench_team_faults [--op OP] [--world N] [--late N] [--killed N] [--counts N] --overlay FILE
//
// OP is all_gather, or all_reduce of few bytes; in f32, tuned into FILE where it lacks the record. One JSON object an item:
//   counts   N launches of captured graphs, one for each bucket, whose rows each rank reads from device memory: random, 0 among them
//   late     N launches that one rank leaves out. `told`: those after which each other rank had NaN where that rank's rows count and
//            Error(team_failed); `served`: those after which Team::reset and a launch gave the right rows
//   killed   N teams of which one rank is killed while it launches. `told`: those of which each survivor got Error(team_failed)
// `longest_ms`: from the begin of the launch, or from the kill, to the error. Exit 1 where a fault was not told.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "captured.hpp"
#include "command_line.hpp"
#include "cuda/device.hpp"
#include "device_values.hpp"
#include "kiln/kiln.hpp"
#include "ranks.hpp"
#include "row.hpp"
#include "team/state.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::int64_t cols = 1024;
constexpr milliseconds short_timeout{40}, long_timeout{60'000};

struct Settings {
  std::string op = "all_gather";
  int world = 2;
  int late = 0, killed = 0, counts = 0;
  kiln::Options options;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (bench::take_file(argc, argv, i, settings.options)) continue;
    if (word == "--op" && i + 1 < argc) {
      settings.op = argv[++i];
      continue;
    }
    int* const number = word == "--world"    ? &settings.world
                        : word == "--late"   ? &settings.late
                        : word == "--killed" ? &settings.killed
                        : word == "--counts" ? &settings.counts
                                             : nullptr;
    if (number == nullptr || i + 1 == argc)
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is not known, or has no value", word));
    *number = std::stoi(argv[++i]);
  }
  return settings;
}

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

/// Of all ranks, in memory that they share.
struct Tally {
  std::atomic<int> told, served, wrong, tunes, compiles;
  std::atomic<std::int64_t> longest_us, killed_at_us;

  void took(double ms) {
    const auto us = static_cast<std::int64_t>(1000 * ms);
    std::int64_t before = longest_us;
    while (before < us && !longest_us.compare_exchange_weak(before, us)) {
    }
  }
};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

/// One rank's process: its part, and what it gathers.
class Rank {
 public:
  Rank(const Settings& settings, int index, const std::string& name, milliseconds launch_timeout)
      : rank(index),
        world(settings.world),
        team(std::make_shared<kiln::Team>(
            index, settings.world, name,
            kiln::TeamOptions{index, std::int64_t{64} << 20, long_timeout, launch_timeout})),
        engine(options_of(settings)),
        gathers(settings.op == "all_gather"),
        most_rows(gathers ? 1024 : 128),
        op(engine.op(settings.op)),
        context_(index),
        scope_(context_),
        x_(most_rows * cols * 4),
        y_(world * most_rows * cols * 4),
        length_(4) {}

  /// Row r of rank k holds k * 4096 + r + step in all columns.
  void fill(std::int64_t rows, int step) {
    std::vector<float> values(static_cast<std::size_t>(std::max<std::int64_t>(rows, 1) * cols));
    for (std::int64_t i = 0; i < rows * cols; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(rank * 4096 + i / cols + step);
    x_.copy_from_host(values.data(), std::max<std::int64_t>(rows, 1) * cols * 4);
    y_.fill_bytes(0, stream.handle());
    const auto length = static_cast<std::int32_t>(rows);
    length_.copy_from_host(&length, 4);
    stream.synchronize();
  }
  [[nodiscard]] kiln::Problem problem(std::int64_t rows) const {
    return op.problem({{"rows", rows}, {"cols", cols}, {"world", std::int64_t{world}}, {"dtype", "f32"}});
  }
  [[nodiscard]] kiln::Arguments arguments(bool on_device) const {
    kiln::Arguments all = op.arguments({{"x", kiln::bench::address(x_)}, {"y", kiln::bench::address(y_)}});
    if (gathers) all.set(op.runtime("rank_stride"), most_rows);
    if (on_device) all.set(op.axis("rows"), reinterpret_cast<const std::int32_t*>(length_.pointer()));
    return all;
  }
  void launch(std::int64_t rows) { op.launch(problem(rows), arguments(false), stream.handle()); }

  /// Whether what was gathered or added up is right, of so many rows of each rank.
  [[nodiscard]] bool is_right(const std::vector<std::int64_t>& rows, int step) const {
    std::vector<float> got(static_cast<std::size_t>(world * most_rows * cols));
    y_.copy_to_host(got.data(), y_.bytes());
    if (!gathers) return is_sum(got, rows, step);
    for (int k = 0; k < world; ++k)
      for (std::int64_t i = 0; i < rows[static_cast<std::size_t>(k)] * cols; ++i)
        if (got[static_cast<std::size_t>(k * most_rows * cols + i)] != static_cast<float>(k * 4096 + i / cols + step))
          return false;
    return true;
  }
  /// Whether the rows of the rank that was absent are NaN.
  [[nodiscard]] bool is_poisoned(int absent, std::int64_t rows) const {
    std::vector<float> got(static_cast<std::size_t>(world * most_rows * cols));
    y_.copy_to_host(got.data(), y_.bytes());
    return std::isnan(got[static_cast<std::size_t>(((gathers ? absent * most_rows : 0) + rows - 1) * cols)]);
  }
  /// Whether the engine says that the team has failed.
  [[nodiscard]] bool is_told() const {
    try {
      static_cast<void>(engine.check(stream.handle()));
    } catch (const kiln::Error& error) {
      return error.kind() == kiln::ErrorKind::team_failed;
    }
    return false;
  }

  int rank, world;
  std::shared_ptr<kiln::Team> team;
  kiln::Engine engine;
  bool gathers;
  std::int64_t most_rows;
  kiln::Op op;

 private:
  /// Rows that a rank does not have count as 0.
  [[nodiscard]] bool is_sum(const std::vector<float>& got, const std::vector<std::int64_t>& rows, int step) const {
    for (std::int64_t i = 0; i < rows[static_cast<std::size_t>(rank)] * cols; ++i) {
      float sum = 0;
      for (int k = 0; k < world; ++k)
        if (i / cols < rows[static_cast<std::size_t>(k)]) sum += static_cast<float>(k * 4096 + i / cols + step);
      if (got[static_cast<std::size_t>(i)] != sum) return false;
    }
    return true;
  }
  [[nodiscard]] kiln::Options options_of(const Settings& settings) const {
    kiln::Options options = settings.options;
    options.device = rank;
    options.team = team;
    return options;
  }
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::cuda::Buffer x_, y_, length_;

 public:
  kiln::cuda::Stream stream;
};

void counts(const Settings& settings, int index, const std::string& name, Tally& tally) {
  Rank rank(settings, index, name, long_timeout);
  const std::vector<std::int64_t> edges = {rank.most_rows / 64, rank.most_rows / 8, rank.most_rows};
  std::map<std::int64_t, std::unique_ptr<kiln::bench::Captured>> graphs;
  for (const std::int64_t edge : edges) {
    rank.fill(edge, 0);
    rank.launch(edge);
    rank.stream.synchronize();
    graphs[edge] = std::make_unique<kiln::bench::Captured>(
        rank.stream.handle(), [&] { rank.op.launch(rank.problem(edge), rank.arguments(true), rank.stream.handle()); });
  }
  const kiln::Stats before = rank.engine.stats();
  std::mt19937 random(20261125);  // the same on all ranks
  for (int i = 0; i < settings.counts; ++i) {
    const std::int64_t edge = edges[random() % edges.size()];
    std::vector<std::int64_t> rows;
    for (int k = 0; k < rank.world; ++k)
      rows.push_back(random() % 8 == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<unsigned>(edge)) + 1);
    rank.fill(rows[static_cast<std::size_t>(index)], i);
    graphs[edge]->launch(rank.stream.handle());
    rank.stream.synchronize();
    if (!rank.is_right(rows, i)) ++tally.wrong;
  }
  static_cast<void>(rank.engine.check(rank.stream.handle()));
  tally.tunes += static_cast<int>(rank.engine.stats().tunes - before.tunes);
  tally.compiles += static_cast<int>(rank.engine.stats().compiles - before.compiles);
}

void late(const Settings& settings, int index, const std::string& name, Tally& tally) {
  Rank rank(settings, index, name, short_timeout);
  kiln::team::Rendezvous& ranks = kiln::team::state_of(*rank.team).rendezvous;
  rank.fill(rank.most_rows, 0);
  rank.launch(rank.most_rows);
  rank.stream.synchronize();
  std::mt19937 random(20261125);
  for (int i = 0; i < settings.late; ++i) {
    const int absent = static_cast<int>(random() % static_cast<unsigned>(rank.world));
    const std::int64_t rows = rank.most_rows - static_cast<std::int64_t>(random()) % (rank.most_rows * 2 / 5);
    rank.fill(rows, i);
    ranks.barrier();
    if (index != absent) {
      const Clock::time_point begun = Clock::now();
      rank.launch(rows);
      if (rank.is_told() && rank.is_poisoned(absent, rows)) ++tally.told;
      tally.took(ms_since(begun));
    } else {
      std::this_thread::sleep_for(2 * short_timeout);
    }
    ranks.barrier();
    rank.team->reset();
    rank.fill(rows, i + 1);
    rank.launch(rows);
    rank.stream.synchronize();
    if (rank.is_right(std::vector<std::int64_t>(static_cast<std::size_t>(rank.world), rows), i + 1)) ++tally.served;
  }
}

void killed(const Settings& settings, int index, const std::string& name, Tally& tally, int victim, unsigned launches) {
  Rank rank(settings, index, name, long_timeout);
  rank.fill(rank.most_rows, 0);
  for (unsigned i = 0;; ++i) {
    if (index == victim && i == launches) {
      tally.killed_at_us = now_us();
      kill(getpid(), SIGKILL);
    }
    try {
      rank.launch(rank.most_rows);
      if (i % 4 == 3) rank.stream.synchronize();
    } catch (const kiln::Error& error) {
      if (error.kind() == kiln::ErrorKind::team_failed) ++tally.told;
      tally.took(static_cast<double>(now_us() - tally.killed_at_us) / 1000);
      return;
    }
  }
}

/// Runs `body` in a process for each rank. Returns once all have ended.
template <class Body>
void in_ranks(int world, const Body& body) {
  bench::run_ranks(world, [&](int rank, const std::string& name) {
    body(rank, name);
    return 0;
  });
}

/// Once no rank is forked any more: asking for the compiler may begin CUDA, which no child of this process could use.
void print(const Settings& settings, const std::vector<std::string>& items) {
  for (const std::string& item : items)
    fmt::print(R"({},"op":"{}",{}}}{})", bench::compiled_row("team_faults"), settings.op, item, '\n');
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  auto& tally =
      *static_cast<Tally*>(mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  bool all_told = true;
  std::vector<std::string> items;
  if (settings.counts > 0) {
    in_ranks(settings.world, [&](int rank, const std::string& name) { counts(settings, rank, name, tally); });
    items.push_back(fmt::format(R"("item":"counts","launches":{},"world":{},"wrong":{},"tunes":{},"compiles":{})",
                                settings.counts, settings.world, tally.wrong.load(), tally.tunes.load(),
                                tally.compiles.load()));
    all_told = tally.wrong == 0;
  }
  if (settings.late > 0) {
    in_ranks(settings.world, [&](int rank, const std::string& name) { late(settings, rank, name, tally); });
    const int told = tally.told / (settings.world - 1), served = tally.served / settings.world;
    items.push_back(
        fmt::format(R"("item":"late","faults":{},"world":{},"timeout_ms":{},"told":{},"served":{},"longest_ms":{:.1f})",
                    settings.late, settings.world, short_timeout.count(), told, served,
                    static_cast<double>(tally.longest_us) / 1000));
    all_told = all_told && told == settings.late && served == settings.late;
  }
  if (settings.killed > 0) {
    tally.told = 0;
    tally.longest_us = 0;
    std::mt19937 random(20261125);
    for (int i = 0; i < settings.killed; ++i) {
      const int victim = static_cast<int>(random() % static_cast<unsigned>(settings.world));
      const auto launches = static_cast<unsigned>(1 + random() % 200);
      in_ranks(settings.world,
               [&](int rank, const std::string& name) { killed(settings, rank, name, tally, victim, launches); });
    }
    const int told = tally.told / (settings.world - 1);
    items.push_back(fmt::format(
        R"("item":"killed","faults":{},"world":{},"timeout_ms":{},"told":{},"longest_ms":{:.1f})", settings.killed,
        settings.world, long_timeout.count(), told, static_cast<double>(tally.longest_us) / 1000));
    all_told = all_told && told == settings.killed;
  }
  print(settings, items);
  return all_told ? 0 : 1;
} catch (const std::exception& error) {
  std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
  return 2;
}
