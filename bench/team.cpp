// Ops of a team on the GPUs of one host: a process for each GPU, time by the slowest of them.
//
//   bench_team [--world N] [--seconds S] [--skew] [--base FILE]... [--overlay FILE] [--problems FILE]
//
// A problem is an op and the sizes of its axes but that of the team; FILE holds one a line, # begins a remark. An op of one device runs on all
// at once. Tensors are made from the op's declaration, and each rank's are verified against its reference. What the files lack is tuned by all
// ranks first. One JSON object a problem:
//   ns, p95_ns     median and 95th percentile of the launches' device time, each the maximum over the ranks. L2 is flushed before each, then
//                  the ranks' devices meet in a barrier. Long launches rest between batches, as a tune's do, to keep the highest clock
//   replayed_ns    the same, a graph of one launch in place of the launch
//   host_us        median host time of a launch, from an idle device
//   wall_us        median time from then until the stream is idle again
//   first_ms       time of the first launch, tune included
//   skewed_ns      with --skew, by microseconds by which the last rank begins later than the others: median time from then until all have ended
// All are maxima over the ranks. --seconds: problems are left out that would begin later than this. A problem that fails gives a line with the
// error, and exit 1.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "answer/cubins.hpp"
#include "captured.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "command_line.hpp"
#include "cuda/device.hpp"
#include "kiln/kiln.hpp"
#include "manifest/problem.hpp"
#include "ranks.hpp"
#include "row.hpp"
#include "store/layers.hpp"
#include "team/exchange.hpp"
#include "team/state.hpp"
#include "tune/measure.hpp"
#include "tune/team_barrier.hpp"
#include "tune/verification_case.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using kiln::cli::Json;

constexpr std::uint64_t seed = 20261125;
constexpr std::int64_t samples = 51, host_samples = 51, warm_runs = 3, skewed_samples = 15;
constexpr std::chrono::milliseconds cooling{200};  // before each problem: the one before may have lowered the clock
constexpr int skews_us[] = {0, 50, 500, 100'000};
constexpr std::string_view delay_source = R"(
extern "C" __global__ void delay(unsigned long long ns) {
  unsigned long long begun, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun)::"memory");
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory"); while (now - begun < ns);
}
)";
constexpr std::int64_t rank_bytes = std::int64_t{1} << 30;  // of symmetric memory, for each rank of the team

struct Settings {
  int world = 2;
  double seconds = 1e9;
  bool skew = false;
  kiln::Options options;
  std::vector<bench::WrittenProblem> asked;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (bench::take_file(argc, argv, i, settings.options)) continue;
    if (word == "--skew") {
      settings.skew = true;
      continue;
    }
    if (i + 1 == argc)
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is not known, or has no value", word));
    if (word == "--world")
      settings.world = std::stoi(argv[++i]);
    else if (word == "--seconds")
      settings.seconds = std::stod(argv[++i]);
    else if (word == "--problems")
      settings.asked = bench::read_problems(argv[++i]);
    else
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is not known", word));
  }
  return settings;
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// A kernel that ends after a time, so that what is enqueued behind it begins late.
class Delay {
 public:
  Delay(const std::string& arch, kiln::answer::Cubins& cubins) {
    kiln::jit::Specialisation kernel;
    kernel.label = kernel.entry = "delay.cuh";
    kernel.folder = "bench";
    kernel.files =
        std::vector<kiln::manifest::SourceFile>{{kernel.entry, kiln::manifest::SourceText::of_static(delay_source)}};
    kernel.name_expressions = {"delay"};
    kernel.arch = arch;
    const kiln::jit::Cubin cubin = cubins.get_and_keep(kernel).cubin;
    module_ = std::make_unique<kiln::jit::Module>(cubin.image, cubin.lowered_names);
  }
  void enqueue(int us, CUstream stream) const {
    unsigned long long ns = 1000ull * static_cast<unsigned>(us);
    void* parameters[] = {&ns};
    kiln::cuda::check(kiln::cuda::Driver::get().cuLaunchKernel(module_->function(0), 1, 1, 1, 1, 1, 1, 0, stream,
                                                               parameters, nullptr),
                      "delaying a rank");
  }

 private:
  std::unique_ptr<kiln::jit::Module> module_;
};

/// One rank's process.
class Rank {
 public:
  Rank(const Settings& settings, int rank, const std::string& name)
      : rank_(rank),
        world_(settings.world),
        team_(std::make_shared<kiln::Team>(rank, settings.world, name,
                                           kiln::TeamOptions{rank, settings.world * rank_bytes})),
        engine_(options_of(settings)),
        context_(rank),
        scope_(context_),
        layers_({.bases = settings.options.bases}),
        cubins_(layers_, pool_),
        arch_(kiln::jit::default_arch(context_.info().facts.sm())),
        stopwatch_(context_.info().facts, kiln::Regime::cold_l2, arch_, cubins_),
        barrier_(*kiln::team::state_of(*team_).member, arch_, cubins_),
        ops_(std::span<const std::filesystem::path>()) {
    if (settings.skew) delay_.emplace(arch_, cubins_);
    stopwatch_.before_each([this](CUstream stream) {
      barrier_.enqueue(stream);
      if (late_us_ > 0 && rank_ == world_ - 1) delay_->enqueue(late_us_, stream);
    });
  }

  /// The row on rank 0. Every rank takes part.
  Json run(const bench::WrittenProblem& asked) {
    const kiln::manifest::Op& described = kiln::cli::find_op(ops_, asked.op);
    std::vector<std::string> words = asked.words;
    if (described.is_of_team()) words.push_back(fmt::format("world={}", world_));
    const kiln::Problem problem = kiln::cli::parse_problem(described, words);
    kiln::tune::Placement placement;
    if (described.is_of_team()) placement.rank = rank_;
    kiln::tune::VerificationCase tensors({described, context_.info().facts}, problem, arch_, cubins_, seed,
                                         stream_.handle(), placement);
    const kiln::Op op = engine_.op(asked.op);
    const auto launch = [&](CUstream stream) { op.launch(problem, tensors.arguments(), stream); };

    const std::int64_t tunes = engine_.stats().tunes;
    const Clock::time_point begun = Clock::now();
    tensors.poison(stream_.handle());
    launch(stream_.handle());
    const kiln::tune::Check check = tensors.check(stream_.handle());
    const double first_ms = 1e3 * seconds_since(begun);
    static_cast<void>(engine_.check(stream_.handle()));
    const std::string wrong = first_failure(check.right ? "" : check.reason);
    if (!wrong.empty()) throw kiln::Error(kiln::ErrorKind::wrong_result, wrong);
    const kiln::Plan plan = op.plan(problem, stream_.handle());

    std::this_thread::sleep_for(cooling);
    const kiln::tune::Launch timed = launch;
    static_cast<void>(sample(timed, warm_runs));
    const auto launched = sample(timed, samples);
    const kiln::bench::Captured captured(stream_.handle(), [&] { launch(stream_.handle()); });
    const kiln::tune::Launch replay = [&](CUstream stream) { captured.launch(stream); };
    const auto replayed = sample(replay, samples);
    std::vector<double> host_us, wall_us;
    for (std::int64_t i = 0; i < host_samples; ++i) {
      barrier_.enqueue(stream_.handle());
      stream_.synchronize();
      const Clock::time_point idle = Clock::now();
      launch(stream_.handle());
      host_us.push_back(1e6 * seconds_since(idle));
      stream_.synchronize();
      wall_us.push_back(1e6 * seconds_since(idle));
    }
    host_us = largest(host_us);
    wall_us = largest(wall_us);
    Json skewed = Json::object();
    if (delay_) {
      for (const int us : skews_us) skewed[std::to_string(us)] = std::llround(quantile(sample_skewed(timed, us), 0.5));
    }
    const auto first = largest({first_ms});
    auto frame = kiln::manifest::frame_of({described, context_.info().facts}, problem);
    const std::int64_t bytes = described.cost_bytes.evaluate(frame).number;
    const std::int64_t flops = described.cost_flops.evaluate(frame).number;
    const double ns = quantile(launched, 0.5);
    Json row = {{"problem", kiln::manifest::to_string(described, problem)},
                {"asked", fmt::format("{} {}", asked.op, fmt::join(asked.words, " "))},
                {"world", world_},
                {"implementation", plan.implementation()},
                {"config", plan.config()},
                {"right", true},
                {"ns", std::llround(ns)},
                {"p95_ns", std::llround(quantile(launched, 0.95))},
                {"replayed_ns", std::llround(quantile(replayed, 0.5))},
                {"host_us", rounded(quantile(host_us, 0.5))},
                {"wall_us", rounded(quantile(wall_us, 0.5))},
                {"first_ms", rounded(first.front())},
                {"tunes", engine_.stats().tunes - tunes},
                {"bytes", bytes},
                {"tflop_s", rounded(static_cast<double>(flops) / ns / 1000)}};
    if (delay_) row["skewed_ns"] = skewed;
    return row;
  }

  /// Whether rank 0 says that there is time.
  bool goes_on(bool own) { return kiln::team::broadcast_text(ranks(), 0, own ? "y" : "n") == "y"; }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  static double rounded(double value) { return std::round(value * 100) / 100; }

  [[nodiscard]] kiln::Options options_of(const Settings& settings) const {
    kiln::Options options = settings.options;
    options.device = rank_;
    options.team = team_;
    return options;
  }
  kiln::team::Rendezvous& ranks() { return kiln::team::state_of(*team_).rendezvous; }

  /// Device times, maxima over the ranks. Long launches rest between batches, of all ranks alike, as a tune's do.
  std::vector<double> sample(const kiln::tune::Launch& launch, std::int64_t count) {
    std::vector<double> taken;
    kiln::tune::in_batches(count, 0, [&](std::int64_t now) {
      const auto some = largest(stopwatch_.sample({&launch, 1}, now, stream_.handle()).front());
      taken.insert(taken.end(), some.begin(), some.end());
      kiln::tune::BatchTime busy;
      busy.add(some);
      return busy;
    });
    return taken;
  }

  /// From the late rank's beginning until each rank's end, maxima over the ranks.
  std::vector<double> sample_skewed(const kiln::tune::Launch& launch, int us) {
    late_us_ = us;
    auto taken = stopwatch_.sample({&launch, 1}, skewed_samples, stream_.handle()).front();
    late_us_ = 0;
    if (rank_ != world_ - 1)
      for (double& ns : taken) ns = std::max(ns - 1e3 * us, 0.0);
    return largest(std::move(taken));
  }

  std::vector<double> largest(std::vector<double> values) { return bench::largest(*team_, std::move(values)); }
  std::string first_failure(const std::string& own) {
    const auto all = kiln::team::gather_texts(ranks(), own);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (!all[rank].empty()) return fmt::format("rank {}: {}", rank, all[rank]);
    return "";
  }

  int rank_, world_;
  std::shared_ptr<kiln::Team> team_;
  kiln::Engine engine_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::store::Layers layers_;
  kiln::jit::CompilePool pool_;
  kiln::answer::Cubins cubins_;
  std::string arch_;
  kiln::tune::Stopwatch stopwatch_;
  kiln::tune::TeamBarrier barrier_;
  std::optional<Delay> delay_;
  int late_us_ = 0;  // of the last rank
  kiln::manifest::Catalogue ops_;
  kiln::cuda::Stream stream_;
};

int run_rank(const Settings& settings, int index, const std::string& name) {
  const Clock::time_point begun = Clock::now();
  int status = 0;
  Rank rank(settings, index, name);
  for (const bench::WrittenProblem& asked : settings.asked) {
    if (!rank.goes_on(seconds_since(begun) < settings.seconds)) break;
    auto row = bench::compiled_row_as<Json>("team");
    try {
      row.update(rank.run(asked));
    } catch (const kiln::Error& error) {
      row.update({{"asked", fmt::format("{} {}", asked.op, fmt::join(asked.words, " "))},
                  {"rank", index},
                  {"error", error.what()}});
      status = 1;
    }
    if (index == 0 || status != 0) {
      std::puts(row.dump().c_str());
      std::fflush(stdout);
    }
    if (status != 0) break;  // the ranks may be apart
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  return bench::run_ranks(settings.world,
                          [&](int rank, const std::string& name) { return run_rank(settings, rank, name); });
} catch (const std::exception& error) {
  std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
  return 2;
}
