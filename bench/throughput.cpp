// Device time of an op against a device copy of the same bytes, both with L2 flushed before each run.
//
//   bench_throughput [--base FILE] [--overlay FILE] OP axis=value... [, OP axis=value...]...
//
// One JSON object a line: problem, implementation, config, nanoseconds, bytes/s and FLOP/s from the op's cost model, the copy's nanoseconds.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/kiln.hpp"
#include "spec/problem.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"
#include "tune/measure.hpp"
#include "tune/verification_case.hpp"

namespace {

struct Asked {
  std::string op;
  std::vector<kiln::spec::Setting> settings;
};

struct Arguments {
  kiln::Options options;
  std::vector<Asked> asked;
};

Arguments parse(int argc, char** argv) {
  Arguments result;
  bool new_problem = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (word == "--base" && i + 1 < argc)
      result.options.bases.emplace_back(argv[++i]);
    else if (word == "--overlay" && i + 1 < argc)
      result.options.overlay = argv[++i];
    else if (word == ",")
      new_problem = true;
    else if (new_problem)
      result.asked.push_back({word, {}}), new_problem = false;
    else if (equals != std::string::npos)
      result.asked.back().settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
    else
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("'{}' is neither an option nor axis=value", word));
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
        stopwatch_(context_.info().facts, kiln::Regime::cold_l2, kiln::jit::default_arch(context_.info().facts.sm()),
                   cubins_),
        ops_(kiln::spec::load_ops({})) {}

  void run(const Asked& asked) {
    const kiln::Op op = engine_.op(asked.op);
    const auto& described =
        *std::find_if(ops_.begin(), ops_.end(), [&](const auto& each) { return each.name == asked.op; });
    const kiln::Problem problem = kiln::spec::make_problem(described, asked.settings);
    const auto& facts = context_.info().facts;
    kiln::tune::VerificationCase verified(described, problem, facts, kiln::jit::default_arch(facts.sm()), cubins_,
                                          20261121, stream_.handle());
    const kiln::Plan plan = op.plan(problem, stream_.handle());
    verified.poison(stream_.handle());
    op.launch(problem, verified.arguments(), stream_.handle());
    const kiln::tune::Check check = verified.check(stream_.handle());
    const auto limits = kiln::tune::MeasureLimits{.budget_ns = 200e6, .minimum_samples = 51, .maximum_samples = 201};
    const auto cost = stopwatch_.measure([&](CUstream stream) { op.launch(problem, verified.arguments(), stream); },
                                         stream_.handle(), limits);
    const auto frame = kiln::spec::make_frame(described, nullptr, problem, facts);
    const double bytes = static_cast<double>(described.cost_bytes.evaluate(frame).number);
    const double flops = static_cast<double>(described.cost_flops.evaluate(frame).number);
    const double copy_ns = copy(static_cast<std::int64_t>(bytes) / 2, limits);
    fmt::print(
        "{{\"bench\":\"throughput\",\"op\":\"{}\",\"problem\":\"{}\",\"implementation\":\"{}\",\"config\":\"{}\",\"right\":{},\"worst_error\":{:.3g},\"ns\":{:.0f},"
        "\"low_ns\":{:.0f},\"high_ns\":{:.0f},\"gb_s\":{:.1f},\"tflop_s\":{:.2f},\"copy_ns\":{:.0f},\"of_copy\":{:.3f}}}\n",
        asked.op, kiln::spec::to_string(described, problem), plan.implementation(), plan.config(), check.right,
        check.worst_error, cost.median_ns, cost.low_ns, cost.high_ns, bytes / cost.median_ns,
        flops / cost.median_ns / 1000, copy_ns, copy_ns / cost.median_ns);
    if (!check.right) throw kiln::Error(kiln::ErrorKind::wrong_result, check.reason);
  }

 private:
  /// A device-to-device copy that reads and writes `bytes` each.
  double copy(std::int64_t bytes, const kiln::tune::MeasureLimits& limits) {
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
  kiln::tune::Cubins cubins_;
  kiln::cuda::Stream stream_;
  kiln::tune::Stopwatch stopwatch_;
  std::vector<kiln::spec::Op> ops_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    Bench bench(arguments.options);
    for (const Asked& asked : arguments.asked) bench.run(asked);
    return 0;
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_throughput: {}\n", error.what());
    return error.kind() == kiln::ErrorKind::wrong_result ? 1 : 3;
  }
}
