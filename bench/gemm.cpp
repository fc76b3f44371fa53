// Matrix products of real models: Kiln's plan, the best of Kiln's own kernels, and cuBLASLt, in turns on the same tensors.
//
//   bench_gemm [--base FILE]... [--overlay FILE] [--samples FILE] [--stand-ins FILE] [--algorithms N] [--fast-accumulation] --problems FILE [name=value...]
//
// FILE holds "gemm m=M n=N k=K # name" a line; the words that follow (dtype=f16) go for all of them. What no file has a record of is tuned
// on the way, as a first launch does; with --stand-ins another engine, which tunes nothing and has that FILE alone, launches what its
// policy `nearest` answers. Where the record's answer for a length
// is a library's, the record's own kernel for it is timed as well. The library gets 32 MiB of workspace and is asked for N algorithms (32):
// each is verified and timed, and the fastest of those that come out right go on to the comparison, with the one that its heuristic puts first.
//
// Every result is compared with the op's reference in f64, element by element, before it is timed: with L2 flushed, forwards and backwards in
// turns, with pauses after long ones, so that nobody's clock is what another's power has left. One JSON object a shape.
// "kiln" is the plan, "own" Kiln's own kernels, "first" and "best" the library's. Ratios are of times, over 1 where Kiln is faster, with
// intervals of 95 %. A shape that fails gives a line with the error, and exit 1.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "answer/serving.hpp"
#include "cli/problem_set.hpp"
#include "contest.hpp"
#include "gemm/library.hpp"
#include "gemm/settings.hpp"
#include "kiln/kiln.hpp"
#include "manifest/describe.hpp"
#include "row.hpp"

namespace {

using bench::Contender;
using kiln::cli::Json;
using kiln::tune::VerificationCase;

constexpr std::int64_t library_workspace_bytes = std::int64_t{32} << 20;
constexpr std::int64_t screening_rounds = 3;  // of each algorithm of the library
constexpr std::size_t finalists = 3;          // of those that came out right
constexpr const char* first_algorithm = "algorithm 0";

/// The record's own kernel for a problem, where a library has the record's answer.
struct OwnKernel {
  kiln::answer::Serving serving;
  kiln::jit::Executable executable;
  kiln::tune::TrialWorkspace workspace;
};

class Bench {
 public:
  explicit Bench(const bench::GemmSettings& settings)
      : settings_(settings),
        engine_(settings.options),
        op_(engine_.op("gemm")),
        context_(settings.options.device),
        scope_(context_),
        layers_({.overlay = settings.options.overlay ? settings.options.overlay : kiln::store::default_overlay(),
                 .bases = settings.options.bases}),
        cubins_(layers_, pool_),
        arch_(kiln::jit::default_arch(context_.info().facts.sm())),
        stopwatch_(context_.info().facts, settings.options.regime, arch_, cubins_),
        ops_(settings.options.template_paths),
        described_(kiln::cli::find_op(ops_, "gemm")),
        library_(bench::open_library()),
        library_workspace_(library_workspace_bytes) {}

  void run(const bench::Shape& shape, Json& line) {
    std::vector<std::string> words = shape.words;
    words.insert(words.end(), settings_.words.begin(), settings_.words.end());
    const kiln::Problem problem = kiln::cli::parse_problem(described_, words);
    line["problem"] = kiln::manifest::to_string(described_, problem);
    kiln::tune::Placement placement;
    placement.leave_optional_out = true;
    for (std::size_t i = 0; i < described_.runtime.size(); ++i)  // the library is asked for x w^T as it stands
      if (described_.runtime[i].name == "scale")
        placement.reals.emplace_back(kiln::manifest::runtime_id(described_, i), 1.0);
    VerificationCase tensors({described_, context_.info().facts}, problem, arch_, cubins_, ++seed_, stream_.handle(),
                             placement);

    std::vector<Contender> all{plan(tensors, line)};
    if (!settings_.stand_ins.empty()) all.push_back(stand_in(tensors, line));
    const auto own = own_kernel(problem, line);
    if (own) {
      const kiln::tune::Check check = tensors.verify(own->executable, own->workspace, stream_.handle());
      require(check);
      all.push_back({"own", [&](CUstream stream) { tensors.launch(own->executable, own->workspace, stream); }});
    }
    const std::size_t kilns = all.size();
    bench::Operands operands = operands_of(tensors);
    const auto has_layout = [&](std::string_view layout) {
      return std::ranges::find(words, fmt::format("layout={}", layout)) != words.end();
    };
    operands.x_has_rows_of_k = !has_layout("tn") && !has_layout("tt");
    operands.w_has_rows_of_k = !has_layout("nn") && !has_layout("tn");
    std::optional<bench::LibraryProduct> product;
    if (library_ != nullptr) {
      product.emplace(*library_, operands, library_workspace_, settings_.algorithms, settings_.fast_accumulation);
      for (Contender& each : algorithms(tensors, *product, line)) all.push_back(std::move(each));
      if (all.size() == kilns && line["library_wrong"] > 0)
        throw kiln::Error(kiln::ErrorKind::wrong_result, "all algorithms of cuBLASLt came out wrong");
    }
    bench::time(all, stopwatch_, stream_.handle());
    report(all, kilns, operands, line);
  }

 private:
  static void require(const kiln::tune::Check& check) {
    if (!check.right) throw kiln::Error(kiln::ErrorKind::wrong_result, check.reason);
  }

  Contender plan(VerificationCase& tensors, Json& line) {
    const kiln::Stats before = engine_.stats();
    const auto begun = std::chrono::steady_clock::now();
    (void)op_.plan(tensors.problem(), stream_.handle());
    const kiln::Stats after = engine_.stats();
    put_ready(line, after.tunes - before.tunes, after.compiles - before.compiles, begun);
    const kiln::Explanation answer = engine_.explain(op_, tensors.problem());
    line["implementation"] = answer.implementation;
    line["config"] = answer.config;
    line["origin"] = to_string(answer.origin);
    Contender plan{"kiln", [&](CUstream stream) { op_.launch(tensors.problem(), tensors.arguments(), stream); }};
    const kiln::tune::Check check = bench::verify(tensors, plan.launch, stream_.handle());
    require(check);
    line["worst_error"] = check.worst_error;
    return plan;
  }

  static void put_ready(Json& line, std::int64_t tunes, std::int64_t compiles,
                        std::chrono::steady_clock::time_point begun) {
    line["tunes"] = tunes;
    line["compiles"] = compiles;
    line["ready_ms"] =
        std::llround(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() * 1e3);
  }

  Contender stand_in(VerificationCase& tensors, Json& line) {
    if (!untuned_) {
      kiln::Options options;
      options.overlay = "";
      options.bases = {settings_.stand_ins};
      options.on_miss = kiln::MissPolicy::nearest;
      untuned_.emplace(options);
    }
    const kiln::Op op = untuned_->op("gemm");
    const kiln::Explanation answer = untuned_->explain(op, tensors.problem());
    line["stand_in"] = answer.implementation + " " + answer.config;
    line["stand_in_origin"] = to_string(answer.origin);
    line["stand_in_expected"] = answer.expected_slowdown;
    Contender launched{"stand_in",
                       [op, &tensors](CUstream stream) { op.launch(tensors.problem(), tensors.arguments(), stream); }};
    require(bench::verify(tensors, launched.launch, stream_.handle()));
    return launched;
  }

  /// Nothing where no library has the answer, and where there is no record.
  std::unique_ptr<OwnKernel> own_kernel(const kiln::Problem& problem, Json& line) {
    const kiln::manifest::DeviceFacts& device = context_.info().facts;
    const kiln::Problem bucket = kiln::manifest::bucket_of(described_, problem);
    const auto record =
        layers_.find_record(kiln::manifest::Bucket({described_, device, settings_.options.regime}, bucket).key());
    if (!record) return nullptr;
    const kiln::answer::Servings servings = kiln::answer::servings_of({{described_, device}, bucket}, record->value);
    const auto serving_at = [&](const std::vector<kiln::answer::Serving>& role) {
      return std::ranges::find_if(role, [&](const auto& each) { return each.region.contains(described_, problem); });
    };
    const auto fastest = serving_at(servings.fastest), own = serving_at(servings.without_library);
    if (fastest == servings.fastest.end() || !fastest->implementation->is_library() ||
        own == servings.without_library.end())
      return nullptr;
    line["own_implementation"] = own->choice.implementation;
    line["own_config"] = own->choice.config;
    const kiln::manifest::Implementation& implementation = *own->implementation;
    const auto frame = own->frame({described_, device}, own->at());
    const auto cubin = cubins_.get(kiln::jit::specialise(described_, implementation, frame, arch_)).cubin;
    kiln::jit::Executable executable(described_, implementation, frame, cubin);
    kiln::tune::TrialWorkspace workspace(executable);
    return std::make_unique<OwnKernel>(OwnKernel{*own, std::move(executable), std::move(workspace)});
  }

  /// x, w and y as the case has them, and scales if the op has such tensors.
  [[nodiscard]] bench::Operands operands_of(const VerificationCase& tensors) const {
    const auto frame = kiln::manifest::frame_of({described_, context_.info().facts}, tensors.problem());
    bench::Operands operands;
    for (std::size_t i = 0; i < described_.axes.size(); ++i)
      for (const auto& [name, size] : {std::pair("m", &operands.m), {"n", &operands.n}, {"k", &operands.k}})
        if (described_.axes[i].name == name) *size = frame[i];
    for (std::size_t i = 0; i < described_.tensors.size(); ++i) {
      const kiln::manifest::Tensor& tensor = described_.tensors[i];
      const void* address = tensors.arguments().tensors[i];
      const kiln::manifest::DType type = described_.dtype_of(tensor, frame);
      if (tensor.name == "x") {
        operands.x = address;
        operands.x_type = type;
      } else if (tensor.name == "w") {
        operands.w = address;
        operands.w_type = type;
      } else if (tensor.name == "y") {
        operands.y = const_cast<void*>(address);
        operands.y_type = type;
      } else if (tensor.name == "x_scale") {
        operands.x_scale = address;
      } else if (tensor.name == "w_scale") {
        operands.w_scale = address;
      }
    }
    return operands;
  }

  /// Of the library's algorithms that come out right: the fastest few, and the heuristic's first.
  std::vector<Contender> algorithms(VerificationCase& tensors, const bench::LibraryProduct& product, Json& line) {
    std::vector<Contender> right;
    std::int64_t wrong = 0, refused = 0;
    for (std::size_t i = 0; i < product.algorithms(); ++i) {
      Contender each{fmt::format("algorithm {}", i), [&product, i](CUstream stream) { product.launch(i, stream); }};
      try {
        if (bench::verify(tensors, each.launch, stream_.handle()).right)
          right.push_back(std::move(each));
        else
          ++wrong;
      } catch (const kiln::Error&) {
        ++refused;
      }
    }
    line["library"] = "cuBLASLt " + library_->version;
    line["library_algorithms"] = product.algorithms();
    line["library_wrong"] = wrong;
    line["library_refused"] = refused;
    bench::sample(right, screening_rounds, stopwatch_, stream_.handle());
    std::stable_sort(right.begin(), right.end(), [](const auto& a, const auto& b) { return a.is_faster_than(b); });
    std::vector<Contender> kept;
    for (std::size_t i = 0; i < right.size(); ++i)
      if (i < finalists || right[i].name == first_algorithm) kept.push_back(std::move(right[i]));
    return kept;
  }

  /// `kilns`: how many of them are Kiln's: the plan, what stands in, and the own kernel, where they are there; the others are the library's.
  static void report(const std::vector<Contender>& all, std::size_t kilns, const bench::Operands& of, Json& line) {
    const double flops = 2.0 * static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k);
    const auto w_bytes = static_cast<double>(of.n * of.k * kiln::manifest::size_of(of.w_type));
    Contender own = all[kilns - 1].name == "own" ? all[kilns - 1] : all.front();
    own.name = "own";
    for (std::size_t i = 1; i < kilns; ++i)
      if (all[i].name == "stand_in") {
        bench::put_time(line, "stand_in", all[i], flops);
        bench::put_ratio(line, all[i], "stand_in", all.front());
      }
    bench::put_time(line, "kiln", all.front(), flops);
    bench::put_time(line, "own", own, flops);
    line["kiln_w_gb_s"] = std::llround(w_bytes / all.front().cost().median_ns);
    const auto library = all.begin() + static_cast<std::ptrdiff_t>(kilns);
    const auto against = [&](const std::string& name, const Contender& peer) {
      line["library_" + name] = peer.name;
      bench::put_time(line, name, peer, flops);
      bench::put_ratio(line, peer, name, all.front());
      bench::put_ratio(line, peer, name, own);
    };
    if (library == all.end()) return;
    against("best",
            *std::min_element(library, all.end(), [](const auto& a, const auto& b) { return a.is_faster_than(b); }));
    const auto first = std::find_if(library, all.end(), [](const auto& each) { return each.name == first_algorithm; });
    if (first != all.end()) against("first", *first);
  }

  const bench::GemmSettings& settings_;
  kiln::Engine engine_;
  kiln::Op op_;
  std::optional<kiln::Engine> untuned_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::store::Layers layers_;
  kiln::jit::CompilePool pool_;
  kiln::answer::Cubins cubins_;
  kiln::cuda::Stream stream_;
  std::string arch_;
  kiln::tune::Stopwatch stopwatch_;
  kiln::manifest::Catalogue ops_;
  const kiln::manifest::Op& described_;
  const kiln::cuda::CublasLt* library_;  // null: Kiln alone
  kiln::cuda::Buffer library_workspace_;
  std::uint64_t seed_ = 20261121;
};

/// False when the shape failed: its line then says why.
bool run_and_print(Bench& bench, const bench::Shape& shape) {
  auto line = bench::compiled_row_as<Json>("gemm");
  line.update({{"name", shape.name}, {"problem", fmt::format("{}", fmt::join(shape.words, " "))}});
  try {
    bench.run(shape, line);
  } catch (const kiln::Error& error) {
    line["error"] = error.what();
  }
  kiln::cli::print_json(line);
  return !line.contains("error");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bench::GemmSettings settings = bench::parse_gemm_settings(argc, argv);
    Bench bench(settings);
    const auto failures = std::count_if(settings.shapes.begin(), settings.shapes.end(),
                                        [&](const auto& shape) { return !run_and_print(bench, shape); });
    return failures == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_gemm: {}\n", error.what());
    return 3;
  }
}
