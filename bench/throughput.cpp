// Device time of an op against a device copy of the same bytes, both with L2 flushed before each run.
//
//   bench_throughput [--base FILE]... [--overlay FILE] [--problems FILE] [OP name=value... [, OP name=value...]...]
//
// A problem is an op, a size for each axis, words for its types and choices, and run-time values where the op's defaults are not meant; FILE
// holds one a line, # begins a remark. Tensors are made from the op's declaration and verified against its reference: an op needs no code here.
// One JSON object a problem: what was launched, nanoseconds, bytes/s and FLOP/s from the op's cost model, the nanoseconds of a copy that moves
// as many bytes, and the rate of a copy so large that only the memory decides. A problem that fails gives a line with the error, and exit 1.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/runtime_values.hpp"
#include "command_line.hpp"
#include "cuda/device.hpp"
#include "kiln/kiln.hpp"
#include "manifest/problem.hpp"
#include "row.hpp"
#include "store/layers.hpp"
#include "tune/measure.hpp"
#include "tune/verification_case.hpp"

namespace {

using kiln::cli::Json;

constexpr std::uint64_t seed = 20261121;
constexpr std::int64_t large_copy_bytes = std::int64_t{1} << 31;  // read, and as many written
constexpr kiln::tune::MeasureLimits limits{.budget_ns = 200e6, .minimum_samples = 51, .maximum_samples = 201};

struct Arguments {
  kiln::Options options;
  std::vector<bench::WrittenProblem> asked;
};

Arguments parse(int argc, char** argv) {
  Arguments result;
  bool new_problem = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (bench::take_file(argc, argv, i, result.options)) continue;
    if (word == "--problems" && i + 1 < argc) {
      const auto read = bench::read_problems(argv[++i]);
      result.asked.insert(result.asked.end(), read.begin(), read.end());
    } else if (word == ",") {
      new_problem = true;
    } else if (new_problem) {
      result.asked.push_back({word, {}, {}});
      new_problem = false;
    } else {
      result.asked.back().words.push_back(word);
    }
  }
  return result;
}

class Bench {
 public:
  explicit Bench(const kiln::Options& options)
      : engine_(options),
        context_(options.device),
        scope_(context_),
        layers_({.bases = options.bases}),
        cubins_(layers_, pool_),
        arch_(kiln::jit::default_arch(context_.info().facts.sm())),
        stopwatch_(context_.info().facts, kiln::Regime::cold_l2, arch_, cubins_),
        ops_(std::span<const std::filesystem::path>()),
        large_copy_gb_s_(2.0 * large_copy_bytes / copy_ns(large_copy_bytes)) {}

  Json run(const bench::WrittenProblem& asked) {
    const kiln::manifest::Op& described = kiln::cli::find_op(ops_, asked.op);
    std::vector<std::string> words = asked.words;
    const kiln::tune::Placement placement = kiln::cli::take_runtime_values(described, words);
    const kiln::Problem problem = kiln::cli::parse_problem(described, words);
    const auto& facts = context_.info().facts;
    kiln::tune::VerificationCase tensors({described, facts}, problem, arch_, cubins_, seed, stream_.handle());
    if (!placement.runtime.empty() || !placement.reals.empty())
      tensors.retarget(problem, seed, stream_.handle(), placement);

    const kiln::Op op = engine_.op(asked.op);
    const kiln::Plan plan = op.plan(problem, stream_.handle());
    tensors.poison(stream_.handle());
    op.launch(problem, tensors.arguments(), stream_.handle());
    const kiln::tune::Check check = tensors.check(stream_.handle());
    if (!check.right) throw kiln::Error(kiln::ErrorKind::wrong_result, check.reason);
    const kiln::tune::Cost cost = stopwatch_.measure(
        [&](CUstream stream) { op.launch(problem, tensors.arguments(), stream); }, stream_.handle(), limits);

    auto frame = kiln::manifest::frame_of({described, facts}, problem);
    for (const auto& [runtime, value] : placement.runtime)
      frame[static_cast<std::size_t>(described.first_runtime()) + runtime.index] = value;
    const std::int64_t bytes = described.cost_bytes.evaluate(frame).number;
    const std::int64_t flops = described.cost_flops.evaluate(frame).number;
    const double same_bytes_ns = copy_ns(bytes / 2);
    const double gb_s = static_cast<double>(bytes) / cost.median_ns;
    return Json{{"problem", kiln::manifest::to_string(described, problem)},
                {"asked", fmt::format("{}", fmt::join(asked.words, " "))},
                {"implementation", plan.implementation()},
                {"config", plan.config()},
                {"right", check.right},
                {"worst_error", rounded(check.worst_error, 1e6)},
                {"ns", std::llround(cost.median_ns)},
                {"low_ns", std::llround(cost.low_ns)},
                {"high_ns", std::llround(cost.high_ns)},
                {"bytes", bytes},
                {"gb_s", rounded(gb_s, 10)},
                {"tflop_s", rounded(static_cast<double>(flops) / cost.median_ns / 1000, 100)},
                {"copy_ns", std::llround(same_bytes_ns)},
                {"of_copy", rounded(same_bytes_ns / cost.median_ns, 1000)},
                {"large_copy_gb_s", rounded(large_copy_gb_s_, 10)},
                {"of_large_copy", rounded(gb_s / large_copy_gb_s_, 1000)}};
  }

 private:
  static double rounded(double value, double to) { return std::round(value * to) / to; }

  /// A device-to-device copy that reads and writes `bytes` each.
  double copy_ns(std::int64_t bytes) {
    const kiln::cuda::Buffer from(bytes), to(bytes);
    from.fill_bytes(0x3c, stream_.handle());
    const auto run = [&](CUstream stream) {
      kiln::cuda::check(kiln::cuda::Driver::get().cuMemcpyDtoDAsync_v2(to.pointer(), from.pointer(),
                                                                       static_cast<std::size_t>(bytes), stream),
                        "cuMemcpyDtoDAsync");
    };
    return stopwatch_.measure(run, stream_.handle(), limits).median_ns;
  }

  kiln::Engine engine_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::store::Layers layers_;
  kiln::jit::CompilePool pool_;
  kiln::answer::Cubins cubins_;
  kiln::cuda::Stream stream_;
  std::string arch_;
  kiln::tune::Stopwatch stopwatch_;
  kiln::manifest::Catalogue ops_;
  double large_copy_gb_s_;
};

/// False when the problem failed: its line then says why.
bool run_and_print(Bench& bench, const bench::WrittenProblem& asked) {
  auto line = bench::compiled_row_as<Json>("throughput");
  line["op"] = asked.op;
  try {
    line.update(bench.run(asked));
  } catch (const kiln::Error& error) {
    line.update({{"problem", fmt::format("{}", fmt::join(asked.words, " "))}, {"error", error.what()}});
  }
  kiln::cli::print_json(line);
  return !line.contains("error");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    Bench bench(arguments.options);
    const auto failures =
        std::count_if(arguments.asked.begin(), arguments.asked.end(),
                      [&](const bench::WrittenProblem& asked) { return !run_and_print(bench, asked); });
    return failures == 0 ? 0 : 1;
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_throughput: {}\n", error.what());
    return 3;
  }
}
