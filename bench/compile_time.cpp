// How long one specialisation takes to compile, for each implementation that could serve a problem. Needs no GPU.
//
//   bench_compile_time [--benchmark_format=json]... [--configs 12] [--arch sm_90a] [--device-class CLASS] [--templates FOLDER]... OP name=value...
//
// On Google Benchmark: a benchmark an implementation, of which each repetition compiles one config. The configs come from all over the search
// space and label their repetitions; the aggregates are over configs. NVRTC's cache on disk is off, as everywhere in Kiln.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/build.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "manifest/problem.hpp"

namespace {

using kiln::manifest::Implementation;

struct Arguments {
  std::size_t configs = 12;
  std::string arch = "sm_90a";
  std::string device_class = "sm_90/mp132/l2_62914560/smem_232448/bus_6016";
  std::vector<std::filesystem::path> templates;
  std::string op;
  std::vector<kiln::manifest::Setting> settings;
};

[[noreturn]] void refuse(const std::string& what) { throw kiln::Error(kiln::ErrorKind::bad_input, what); }

Arguments parse(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (word.starts_with("--")) {
      if (++i == argc) refuse(fmt::format("{} is given no value", word));
      if (word == "--configs")
        result.configs = std::max(1UL, std::stoul(argv[i]));
      else if (word == "--arch")
        result.arch = argv[i];
      else if (word == "--device-class")
        result.device_class = argv[i];
      else if (word == "--templates")
        result.templates.emplace_back(argv[i]);
      else
        refuse(fmt::format("there is no option {}", word));
    } else if (equals == std::string::npos) {
      result.op = word;
    } else {
      result.settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
    }
  }
  return result;
}

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : arguments_(arguments),
        device_(kiln::manifest::DeviceFacts::from_device_class(arguments.device_class)),
        ops_(kiln::manifest::load_ops(arguments.templates)) {
    if (!device_) refuse(fmt::format("the device class '{}' does not parse", arguments.device_class));
    const auto found =
        std::find_if(ops_.begin(), ops_.end(), [&](const auto& each) { return each.name == arguments.op; });
    if (found == ops_.end()) refuse(fmt::format("there is no op '{}'; `kiln ops` lists them", arguments.op));
    op_ = &*found;
    problem_ = kiln::manifest::make_problem(*op_, arguments.settings);
  }

  void run() const {
    warm_up();
    for (const Implementation& each : op_->implementations)
      if (!each.passes.empty() && !kiln::manifest::why_not_eligible(*op_, each, problem_, *device_)) add(each);
    benchmark::RunSpecifiedBenchmarks();
  }

 private:
  [[nodiscard]] kiln::jit::Specialisation specialised(const Implementation& implementation,
                                                      const kiln::manifest::Config& config) const {
    const auto frame = kiln::manifest::make_frame(*op_, &implementation, problem_, *device_, config);
    return kiln::jit::specialise(*op_, implementation, frame, arguments_.arch);
  }

  /// Opens NVRTC and has it read its own files.
  void warm_up() const {
    const auto frame = kiln::manifest::make_frame(*op_, nullptr, problem_, *device_);
    (void)kiln::jit::compile(kiln::jit::specialise_reference(*op_, frame, arguments_.arch));
  }

  void add(const Implementation& implementation) const {
    const auto space = kiln::manifest::searched_space(*op_, implementation, problem_, *device_);
    const std::size_t count = std::min(arguments_.configs, space.size());
    std::vector<kiln::manifest::Config> configs;
    for (std::size_t i = 0; i < count; ++i) configs.push_back(space[i * space.size() / count]);
    if (configs.empty()) return;
    const auto compile = [this, &implementation, configs, next = std::size_t{0}](benchmark::State& state) mutable {
      const kiln::manifest::Config& config = configs[next++ % configs.size()];
      state.SetLabel(kiln::manifest::to_string(implementation, config));
      try {
        const kiln::jit::Specialisation specialisation = specialised(implementation, config);
        for ([[maybe_unused]] auto _ : state)
          state.counters["bytes"] = static_cast<double>(kiln::jit::compile(specialisation).image.size());
      } catch (const kiln::Error& error) {
        state.SkipWithError(error.what());
      }
    };
    benchmark::RegisterBenchmark(fmt::format("{}/{}", op_->name, implementation.name).c_str(), compile)
        ->Iterations(1)
        ->Repetitions(static_cast<int>(configs.size()))
        ->ComputeStatistics("max", [](const std::vector<double>& all) { return *std::ranges::max_element(all); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }

  const Arguments& arguments_;
  std::optional<kiln::manifest::DeviceFacts> device_;
  std::vector<kiln::manifest::Op> ops_;
  const kiln::manifest::Op* op_ = nullptr;
  kiln::Problem problem_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    benchmark::Initialize(&argc, argv);
    benchmark::AddCustomContext("build", std::string(kiln::build()));
    benchmark::AddCustomContext("compiler", kiln::jit::compiler_identity());
    const Arguments arguments = parse(argc, argv);
    Bench(arguments).run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_compile_time: {}\n", error.what());
    return 3;
  }
}
