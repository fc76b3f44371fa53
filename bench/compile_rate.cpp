// Compiles a second, in worker processes and in threads of one NVRTC, for a template without headers and for one with the toolkit's. Needs no GPU.
//
//   bench_compile_rate [--workers 1,2,4,8,16] [--compiles 40] [--arch sm_90a] [--device-class CLASS] [--worker PROGRAM]
//
// One JSON object a line. Each compile is of another config; NVRTC's cache on disk is off, as everywhere in Kiln (--no-cache). Every worker has
// compiled once before the clock begins: `first_ns` is what that took, with beginning the processes and opening NVRTC in each.
// Google Benchmark does not fit: the work is done in other processes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "cuda/search_path.hpp"
#include "jit/compile_pool.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "manifest/variant.hpp"
#include "process/child.hpp"
#include "row.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using kiln::jit::Specialisation;

struct Arguments {
  std::vector<int> workers = {1, 2, 4, 8, 16};
  int compiles = 40;
  std::string arch = "sm_90a";
  std::string device_class = "sm_90/mp132/l2_62914560/smem_232448/bus_6144";
  std::filesystem::path program = kiln::process::find_worker({});
};

using bench::number;
using bench::refuse;

std::vector<int> numbers(std::string_view list) {
  std::vector<int> values;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    values.push_back(number(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return values;
}

Arguments parse(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const char* value = argv[i + 1];
    if (option == "--workers")
      result.workers = numbers(value);
    else if (option == "--compiles")
      result.compiles = number(value);
    else if (option == "--arch")
      result.arch = value;
    else if (option == "--device-class")
      result.device_class = value;
    else if (option == "--worker")
      result.program = value;
    else
      refuse(fmt::format("there is no option '{}'", option));
  }
  if (argc % 2 == 0) refuse(fmt::format("'{}' is given no value", argv[argc - 1]));
  return result;
}

/// Configs of the built-in gemm's `mma` from all over its space, mixed in a fixed order.
std::vector<Specialisation> header_free(const Arguments& arguments, std::size_t count) {
  const auto device = kiln::manifest::DeviceFacts::from_device_class(arguments.device_class);
  if (!device) refuse(fmt::format("the device class '{}' does not parse", arguments.device_class));
  const std::vector<kiln::manifest::Op> ops = kiln::manifest::load_ops({});
  const auto& op = *std::find_if(ops.begin(), ops.end(), [](const auto& each) { return each.name == "gemm"; });
  const std::vector<kiln::manifest::Setting> settings = {{"m", "4096"},     {"n", "4096"},    {"k", "4096"},
                                                         {"dtype", "bf16"}, {"layout", "nt"}, {"activation", "none"}};
  const kiln::Problem problem = kiln::manifest::make_problem(op, settings);
  const auto& mma = *op.find("mma");
  const auto space = kiln::manifest::search_space({op, *device}, mma, problem);
  if (space.size() < count) refuse(fmt::format("gemm's mma has {} configs here, fewer than {}", space.size(), count));
  std::vector<Specialisation> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(kiln::jit::specialise(
        op, mma, kiln::manifest::Variant{&mma, space[i * space.size() / count]}.frame({op, *device}, problem),
        arguments.arch));
  std::shuffle(all.begin(), all.end(), std::mt19937(20261121));  // large ones at the end would wait for each other
  return all;
}

/// A small kernel of bf16 and cuda::std, which the toolkit's headers make a large translation unit.
std::vector<Specialisation> with_headers(const Arguments& arguments, std::size_t count) {
  std::vector<Specialisation> all;
  for (std::size_t i = 0; i < count; ++i) {
    Specialisation each;
    each.label = fmt::format("compile_rate/scale factor={}", i);
    each.entry = "scale.cuh";
    each.files = std::vector<kiln::manifest::SourceFile>{
        {"scale.cuh",
         "#include <cuda_bf16.h>\n"
         "#include <cuda/std/array>\n"
         "template <int Factor>\n"
         "__global__ void scale(const __nv_bfloat16* x, __nv_bfloat16* y, long long n) {\n"
         "  cuda::std::array<__nv_bfloat16, 4> values;\n"
         "  const long long begin = (blockIdx.x * 128ll + threadIdx.x) * 4;\n"
         "  if (begin + 4 > n) return;\n"
         "  for (int i = 0; i < 4; ++i) values[i] = __hmul(x[begin + i], __float2bfloat16(Factor));\n"
         "  for (int i = 0; i < 4; ++i) y[begin + i] = values[i];\n"
         "}\n"}};
    each.name_expressions = {fmt::format("scale<{}>", i)};
    each.arch = arguments.arch;
    each.toolkit_headers = true;
    all.push_back(std::move(each));
  }
  return all;
}

double compile_all(kiln::jit::CompilePool& pool, std::span<const Specialisation> specialisations,
                   const std::string& compiler) {
  std::vector<kiln::manifest::Digest> keys;
  for (const Specialisation& each : specialisations) keys.push_back(kiln::jit::cubin_key(each, compiler));
  const auto begin = Clock::now();
  std::vector<std::shared_future<kiln::jit::Cubin>> futures;
  for (std::size_t i = 0; i < keys.size(); ++i) futures.push_back(pool.submit(keys[i], specialisations[i]));
  for (const auto& each : futures) each.get();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

void measure(const char* source, bool in_processes, int workers, const Arguments& arguments,
             std::span<const Specialisation> specialisations) {
  kiln::jit::CompileSettings settings;
  settings.workers = workers;
  if (in_processes) settings.program = arguments.program;
  kiln::jit::CompilePool pool(settings);
  const std::string compiler = kiln::jit::compiler_identity();
  const auto compiles = static_cast<std::size_t>(arguments.compiles);
  const double first_ns =
      compile_all(pool, specialisations.subspan(compiles, static_cast<std::size_t>(workers)), compiler);
  const double total_ns = compile_all(pool, specialisations.first(compiles), compiler);
  fmt::print(
      "{},\"source\":\"{}\",\"in\":\"{}\",\"workers\":{},\"arch\":\"{}\",\"compiles\":{},"
      "\"ns\":{:.0f},\"per_second\":{:.2f},\"first_ns\":{:.0f}}}\n",
      bench::compiled_row("compile_rate"), source, in_processes ? "processes" : "threads", workers, arguments.arch,
      compiles, total_ns, 1e9 * static_cast<double>(compiles) / total_ns, first_ns);
  std::fflush(stdout);
}

void measure_all(const char* source, const Arguments& arguments, std::span<const Specialisation> specialisations) {
  for (const int workers : arguments.workers)
    for (const bool in_processes : {true, false})
      if (!in_processes || !arguments.program.empty())
        measure(source, in_processes, workers, arguments, specialisations);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    const int most = *std::max_element(arguments.workers.begin(), arguments.workers.end());
    const auto count = static_cast<std::size_t>(arguments.compiles + most);
    if (arguments.program.empty())
      fmt::print(
          stderr,
          "bench_compile_rate: kiln-worker was not found, so threads alone are measured; name it with --worker\n");
    measure_all("gemm mma, no headers", arguments, header_free(arguments, count));
    if (kiln::cuda::toolkit_include_directories().empty())
      fmt::print(
          stderr,
          "bench_compile_rate: no toolkit headers were found, so compiles with them are left out; set CUDA_HOME\n");
    else
      measure_all("cuda_bf16.h and cuda/std/array", arguments, with_headers(arguments, count));
    return 0;
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_compile_rate: {}\n", error.what());
    return 3;
  }
}
