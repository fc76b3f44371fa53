// Kiln's launch of a matrix product against cuBLASLt called directly, with each algorithm of its heuristic's as the heuristic gave it.
//
//   bench_library [--base FILE]... [--overlay FILE] ["gemm m=... n=... k=..."]...
//
// All are timed in turns, L2 flushed before each run; host time is that of enqueueing, the stream synchronised between batches. One JSON
// object a problem: what Kiln launches, nanoseconds of that, of the heuristic's first algorithm and of its fastest, their ratios to Kiln's
// (over 1: Kiln is faster), host nanoseconds of both, and of how many algorithms Kiln's config makes the very same 64 bytes again.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "command_line.hpp"
#include "cuda/device.hpp"
#include "jit/library_algorithm.hpp"
#include "kiln/error.hpp"
#include "kiln/kiln.hpp"
#include "tune/measure.hpp"
#include "tune/verification_case.hpp"

namespace {

using kiln::cli::Json;
using kiln::jit::LibraryProduct;

constexpr std::uint64_t seed = 20261121;
constexpr std::size_t asked_for = 16;
constexpr std::int64_t rounds = 51, workspace_bytes = 32 << 20;
constexpr int host_batches = 51, launches_a_batch = 100;

double median_of(std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  return ns[ns.size() / 2];
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
        ops_(kiln::manifest::load_ops({})),
        workspace_(workspace_bytes) {}

  Json run(const std::string& op_name, const std::vector<std::string>& words) {
    const kiln::manifest::Op& described = kiln::cli::find_op(ops_, op_name);
    const kiln::manifest::Implementation* implementation = described.find("cublaslt");
    if (implementation == nullptr)
      throw kiln::Error(kiln::ErrorKind::bad_input, op_name + " has no implementation cublaslt to compare with");
    const kiln::Problem problem = kiln::cli::parse_problem(described, words);
    const auto& facts = context_.info().facts;
    kiln::tune::VerificationCase tensors(described, problem, facts, arch_, cubins_, seed, stream_.handle());
    const auto frame = kiln::manifest::make_frame(described, implementation, problem, facts);
    const LibraryProduct product(described, *implementation, frame);
    LibraryProduct::Layouts layouts{};
    if (!product.lay_out(frame, layouts)) throw kiln::Error(kiln::ErrorKind::bad_input, "the sizes do not compute");
    const auto algorithms = kiln::jit::propose(product, described, *implementation, frame, asked_for);
    LibraryProduct::Operands of =
        product.operands(tensors.arguments(), frame, reinterpret_cast<void*>(workspace_.pointer()));
    of.alpha = 1;  // a frame for no launch has no reals
    const auto multiply = [&](const CublasLtMatmulAlgo& algorithm, CUstream stream) {
      if (product.multiply(layouts, of, algorithm, workspace_bytes, stream) != CUBLAS_STATUS_SUCCESS)
        throw kiln::Error(kiln::ErrorKind::driver_failed, "cublasLtMatmul failed");
    };

    const kiln::Op op = engine_.op(op_name);
    const kiln::Plan plan = op.plan(problem, stream_.handle());
    const auto launch = [&](CUstream stream) { op.launch(problem, tensors.arguments(), stream); };
    std::vector<kiln::tune::Launch> launches{launch};
    std::int64_t same = 0;
    for (const CublasLtMatmulAlgo& each : algorithms) {
      launches.emplace_back([&multiply, &each](CUstream stream) { multiply(each, stream); });
      const auto again = kiln::jit::algorithm_of(product, kiln::jit::config_of(product.library(), each));
      same += again && again->data == each.data ? 1 : 0;
    }
    Json line{{"problem", kiln::manifest::to_string(described, problem)},
              {"implementation", plan.implementation()},
              {"config", plan.config()},
              {"proposed", algorithms.size()},
              {"made_again", same}};
    if (algorithms.empty()) return line;
    std::vector<double> ns;
    for (std::vector<double>& samples : stopwatch_.sample(launches, rounds, stream_.handle()))
      ns.push_back(median_of(std::move(samples)));
    const double fastest = *std::min_element(ns.begin() + 1, ns.end());
    line.update({{"ns", std::llround(ns.front())},
                 {"first_ns", std::llround(ns[1])},
                 {"fastest_ns", std::llround(fastest)},
                 {"over_first", ns[1] / ns.front()},
                 {"over_fastest", fastest / ns.front()},
                 {"host_ns", host_ns(launch)},
                 {"host_direct_ns", host_ns([&](CUstream stream) { multiply(algorithms.front(), stream); })}});
    return line;
  }

 private:
  template <class Launch>
  double host_ns(const Launch& launch) {
    std::vector<double> batches;
    for (int batch = -1; batch < host_batches; ++batch) {  // the first is a warm-up
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < launches_a_batch; ++i) launch(stream_.handle());
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
      if (batch >= 0) batches.push_back(took.count() / launches_a_batch);
      stream_.synchronize();
    }
    return std::round(median_of(std::move(batches)));
  }

  kiln::Engine engine_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::store::Layers layers_;
  kiln::jit::CompilePool pool_;
  kiln::tune::Cubins cubins_;
  kiln::cuda::Stream stream_;
  std::string arch_;
  kiln::tune::Stopwatch stopwatch_;
  std::vector<kiln::manifest::Op> ops_;
  kiln::cuda::Buffer workspace_;
};

bool run_and_print(Bench& bench, const std::string& asked) {
  std::istringstream words(asked);
  std::string op;
  words >> op;
  std::vector<std::string> settings;
  for (std::string word; words >> word;) settings.push_back(word);
  Json line{{"bench", "library"}, {"op", op}};
  try {
    line.update(bench.run(op, settings));
  } catch (const kiln::Error& error) {
    line.update({{"problem", asked}, {"error", error.what()}});
  }
  kiln::cli::print_json(line);
  return !line.contains("error");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    kiln::Options options;
    std::vector<std::string> asked;
    for (int i = 1; i < argc; ++i)
      if (!bench::take_file(argc, argv, i, options)) asked.emplace_back(argv[i]);
    Bench bench(options);
    const auto failures =
        std::count_if(asked.begin(), asked.end(), [&](const std::string& each) { return !run_and_print(bench, each); });
    return failures == 0 ? 0 : 1;
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_library: {}\n", error.what());
    return 3;
  }
}
