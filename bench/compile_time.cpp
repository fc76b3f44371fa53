// How long one specialisation takes to compile, for each implementation that could serve a problem. Needs no GPU.
//
//   bench_compile_time [--configs 12] [--arch sm_90a] [--device-class CLASS] [--templates FOLDER]... OP name=value...
//
// Configs from all over each search space, compiled one after another in this process, NVRTC's cache on disk off, as everywhere in Kiln. One JSON
// object an implementation: milliseconds (median, 95th percentile, worst and whose), the bytes of machine code, and what was refused with the
// reason of the first. What is beside it on the machine shows in these figures.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "manifest/problem.hpp"

namespace {

using Json = nlohmann::ordered_json;
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

struct Compile {
  std::string config;
  double ms = 0;
  std::size_t bytes = 0;
};

double quantile(const std::vector<Compile>& rising, double share) {
  return rising[static_cast<std::size_t>(std::ceil(share * static_cast<double>(rising.size()))) - 1].ms;
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
      if (!each.passes.empty() && !kiln::manifest::why_not_eligible(*op_, each, problem_, *device_)) measure(each);
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

  void measure(const Implementation& implementation) const {
    const auto space = kiln::manifest::searched_space(*op_, implementation, problem_, *device_);
    const std::size_t count = std::min(arguments_.configs, space.size());
    std::vector<Compile> compiled;
    std::vector<std::string> refused;
    for (std::size_t i = 0; i < count; ++i) {
      const kiln::manifest::Config& config = space[i * space.size() / count];
      try {
        const kiln::jit::Cubin cubin = kiln::jit::compile(specialised(implementation, config));
        compiled.push_back({kiln::manifest::to_string(implementation, config),
                            std::chrono::duration<double, std::milli>(cubin.compile_time).count(), cubin.image.size()});
      } catch (const kiln::Error& error) {
        refused.emplace_back(error.what());
      }
    }
    Json line{{"bench", "compile_time"},
              {"op", op_->name},
              {"problem", kiln::manifest::to_string(*op_, problem_)},
              {"implementation", implementation.name},
              {"arch", arguments_.arch},
              {"space", space.size()},
              {"compiled", compiled.size()},
              {"refused", refused.size()}};
    if (!refused.empty()) line["first_refusal"] = refused.front();
    if (!compiled.empty()) put(line, std::move(compiled));
    fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }

  static void put(Json& line, std::vector<Compile> compiled) {
    std::sort(compiled.begin(), compiled.end(), [](const Compile& a, const Compile& b) { return a.ms < b.ms; });
    line["median_ms"] = std::llround(quantile(compiled, 0.5));
    line["p95_ms"] = std::llround(quantile(compiled, 0.95));
    line["worst_ms"] = std::llround(compiled.back().ms);
    line["worst_config"] = compiled.back().config;
    line["largest_bytes"] = std::max_element(compiled.begin(), compiled.end(), [](const auto& a, const auto& b) {
                              return a.bytes < b.bytes;
                            })->bytes;
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
    const Arguments arguments = parse(argc, argv);
    Bench(arguments).run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_compile_time: {}\n", error.what());
    return 3;
  }
}
