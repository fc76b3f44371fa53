// What a tune costs, whether two of them agree, and what a bucket's configs lose against one tuned for the very length.
//
//   bench_tuning [--lengths N] [--seed S] [--exact] [--samples FILE] [--first FILE --second FILE] --problems FILE
//
// FILE holds a problem a line, "gemm m=1024 n=4096 k=4096 dtype=bf16", which names its bucket. Each bucket is tuned twice from nothing by a first
// launch's defaults, in two engines with different seeds. At N lengths of the bucket (20), drawn at random, what each engine launches is verified and
// then timed in turns with the other, L2 flushed; with --exact, also with a config tuned for that length alone. One JSON object a length (times over that
// of the fastest) and one a bucket: seconds of each tune, candidates, configs kept. With --first and --second nothing is tuned: the engines launch what
// the records of these files say, so that records before and after a tune are compared, and what both launch alike is not timed.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <random>

#include "cli/problem_set.hpp"
#include "command_line.hpp"
#include "contest.hpp"
#include "engine/state.hpp"
#include "kiln/kiln.hpp"
#include "manifest/region.hpp"
#include "row.hpp"
#include "tune/tune_bucket.hpp"

namespace {

using bench::Contender;
using kiln::cli::Json;
using kiln::tune::VerificationCase;

struct Settings {
  std::int64_t lengths = 20;
  std::uint64_t seed = 1;
  bool exact = false;
  std::filesystem::path samples;        // bench_replay repeats the two tunes of each bucket from it
  std::filesystem::path first, second;  // of records, in place of tunes
  std::vector<bench::WrittenProblem> problems;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--exact") {
      settings.exact = true;
    } else if (++i == argc) {
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is given without a value", word));
    } else if (word == "--lengths") {
      settings.lengths = std::stoll(argv[i]);
    } else if (word == "--seed") {
      settings.seed = std::stoull(argv[i]);
    } else if (word == "--samples") {
      settings.samples = argv[i];
    } else if (word == "--first") {
      settings.first = argv[i];
    } else if (word == "--second") {
      settings.second = argv[i];
    } else if (word == "--problems") {
      settings.problems = bench::read_problems(argv[i]);
    } else {
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("{} is unknown; bench/tuning.cpp says what there is", word));
    }
  }
  if (settings.first.empty() != settings.second.empty()) bench::refuse("--first and --second belong together");
  if (settings.exact && !settings.first.empty()) bench::refuse("--exact tunes, and with --first nothing is tuned");
  return settings;
}

kiln::Options options_of(std::uint64_t seed, const std::filesystem::path& samples = {},
                         const std::filesystem::path& records = {}) {
  kiln::Options options;
  options.overlay = "";
  if (!records.empty()) {
    options.bases = {records};
    options.on_miss = kiln::MissPolicy::error;
  }
  options.search.seed = seed;
  options.search.samples = samples;
  return options;
}

/// The op with every axis in buckets of one size, so that a tune is for that size alone.
kiln::manifest::Op exact(kiln::manifest::Op op) {
  for (kiln::manifest::Axis& axis : op.axes) axis.policies.assign(1, {});
  return op;
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

Json row_of(const std::string& op) {
  auto line = bench::compiled_row_as<Json>("tuning");
  line["op"] = op;
  return line;
}

/// An engine that knows no file, and so tunes what it is first asked for; or one that knows `records` alone.
struct Tuned {
  Tuned(std::uint64_t seed, const std::filesystem::path& samples, const std::filesystem::path& records)
      : engine(options_of(seed, samples, records)) {}
  double tune(const std::string& op, const kiln::Problem& bucket) {
    const auto begun = std::chrono::steady_clock::now();
    (void)engine.op(op).plan(bucket);
    return seconds_since(begun);
  }
  kiln::Engine engine;
};

/// A config for one problem.
class Exact {
 public:
  explicit Exact(kiln::engine::EngineState& state) : state_(state) {}
  void tune(const kiln::manifest::Op& described, const kiln::Problem& problem) {
    op_ = exact(described);
    kiln::tune::TuneRequest request = state_.tune_request(op_, problem);
    const kiln::tune::TuneResult result = kiln::tune::tune_bucket(request, state_.cubins);
    const kiln::store::Choice& choice = result.record.at_edge();
    const auto usable =
        kiln::answer::usable({op_, state_.context.info().facts}, problem, choice.implementation, choice.config);
    config = choice.implementation + " " + choice.config;
    const auto frame = usable.frame({op_, state_.context.info().facts}, problem);
    const auto cubin =
        state_.cubins.get(kiln::jit::specialise(op_, *usable.implementation, frame, state_.arch())).cubin;
    executable = std::make_unique<kiln::jit::Executable>(op_, *usable.implementation, frame, cubin);
    workspace = std::make_unique<kiln::tune::TrialWorkspace>(*executable);
  }
  std::string config;
  std::unique_ptr<kiln::jit::Executable> executable;
  std::unique_ptr<kiln::tune::TrialWorkspace> workspace;

 private:
  kiln::engine::EngineState& state_;
  kiln::manifest::Op op_;
};

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        first_(1, settings.samples, settings.first),
        second_(2, settings.samples, settings.second),
        state_(options_of(1)),
        scope_(state_.context),
        stopwatch_(state_.context.info().facts, state_.options.regime, state_.arch(), state_.cubins),
        exact_(state_),
        random_(settings.seed) {}

  void run(const bench::WrittenProblem& written) {
    const kiln::manifest::Op& op = kiln::cli::find_op(state_.ops, written.op);
    const kiln::Problem bucket = kiln::manifest::bucket_of(op, kiln::cli::parse_problem(op, written.words));
    if (settings_.first.empty()) {
      Json line = row_of(op.name);
      line["bucket"] = kiln::manifest::to_string(op, bucket);
      line["first_s"] = first_.tune(op.name, bucket);
      line["second_s"] = second_.tune(op.name, bucket);
      kiln::cli::print_json(line);
    }
    for (std::int64_t i = 0; i < settings_.lengths; ++i) compare(op, drawn(op, bucket));
  }

 private:
  kiln::Problem drawn(const kiln::manifest::Op& op, const kiln::Problem& bucket) {
    kiln::Problem problem = bucket;
    const kiln::Problem low = kiln::manifest::low_corner(op, bucket);
    for (const std::size_t axis : kiln::manifest::open_axes(op, bucket)) {
      const std::int64_t multiple = op.axes[axis].multiple_of;
      std::uniform_int_distribution<std::int64_t> any((low.axes[axis] + multiple - 1) / multiple,
                                                      bucket.axes[axis] / multiple);
      problem.axes[axis] = any(random_) * multiple;
    }
    return problem;
  }

  [[nodiscard]] std::string answer(const kiln::Engine& engine, const std::string& op, const kiln::Problem& problem) {
    const kiln::Explanation found = engine.explain(engine.op(op), problem);
    return found.implementation + " " + found.config;
  }

  void compare(const kiln::manifest::Op& op, const kiln::Problem& problem) {
    if (!settings_.first.empty() && answer(first_.engine, op.name, problem) == answer(second_.engine, op.name, problem))
      return;
    kiln::tune::Placement placement;
    placement.leave_optional_out = true;
    VerificationCase tensors({op, state_.context.info().facts}, problem, state_.arch(), state_.cubins, ++draws_,
                             stream_.handle(), placement);
    Json line = row_of(op.name);
    line["problem"] = kiln::manifest::to_string(op, problem);
    std::vector<Contender> all;
    const auto add = [&](const std::string& name, const kiln::Engine& engine) {
      const kiln::Op launched = engine.op(op.name);
      line[name] = answer(engine, op.name, problem);
      all.push_back({name, [launched, &tensors](CUstream stream) {
                       launched.launch(tensors.problem(), tensors.arguments(), stream);
                     }});
    };
    add("first", first_.engine);
    add("second", second_.engine);
    if (settings_.exact) {
      exact_.tune(op, problem);
      line["exact"] = exact_.config;
      all.push_back({"exact", [&](CUstream stream) { tensors.launch(*exact_.executable, *exact_.workspace, stream); }});
      exact_.workspace->renew(stream_.handle());
    }
    for (const Contender& each : all)
      if (const auto check = bench::verify(tensors, each.launch, stream_.handle()); !check.right)
        throw kiln::Error(kiln::ErrorKind::wrong_result, each.name + ": " + check.reason);
    bench::time(all, stopwatch_, stream_.handle());
    for (const Contender& each : all) {
      bench::put_time(line, each.name, each, 0);
      if (&each != &all.back()) bench::put_ratio(line, each, each.name, all.back());
    }
    kiln::cli::print_json(line);
  }

  const Settings& settings_;
  Tuned first_, second_;
  kiln::engine::EngineState state_;
  kiln::cuda::Context::Scope scope_;
  kiln::cuda::Stream stream_;
  kiln::tune::Stopwatch stopwatch_;
  Exact exact_;
  std::mt19937_64 random_;
  std::uint64_t draws_ = 20261123;
};

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = parse(argc, argv);
  Bench bench(settings);
  int status = 0;
  for (const bench::WrittenProblem& each : settings.problems) {
    try {
      bench.run(each);
    } catch (const kiln::Error& error) {
      Json line = row_of(each.op);
      line["error"] = error.what();
      kiln::cli::print_json(line);
      status = 1;
    }
  }
  return status;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_tuning: {}\n", error.what());
  return 3;
}
