// Host time of a hot launch over a bare cuLaunchKernelEx of the same kernel with the same arguments.
//
//   bench_hit_latency [--base FILE]...
//
// The three ways are interleaved batch by batch, the stream synchronised between batches outside the timed span, so that the queue never fills
// and drift meets all alike. One JSON object a line: way, median and best nanoseconds a launch over all batches.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <string_view>
#include <vector>

#include "cuda/device.hpp"
#include "jit/executable.hpp"
#include "kiln/kiln.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"

namespace {

std::size_t allocations = 0;  // counted by operator new below; this program has one thread while it counts

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr int launches_a_batch = 200;
constexpr int batches = 301;
constexpr std::int64_t cols = 4096;
constexpr std::int64_t rows = 8;  // short, so that the device keeps up with the host

struct Way {
  std::string name;
  std::function<void()> launch;
  std::vector<double> ns;
  std::size_t allocated = 0;
};

void time_batch(Way& way, CUstream stream) {
  const std::size_t before = allocations;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < launches_a_batch; ++i) way.launch();
  const auto end = std::chrono::steady_clock::now();
  way.allocated += allocations - before;
  kiln::cuda::check(kiln::cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
  way.ns.push_back(std::chrono::duration<double, std::nano>(end - begin).count() / launches_a_batch);
}

/// The kernel of a plan, loaded beside the engine, with its arguments laid out by hand: what a program without Kiln would do.
class Bare {
 public:
  Bare(const kiln::spec::Op& op, const kiln::spec::Implementation& implementation,
       const std::vector<std::int64_t>& frame, const kiln::jit::Cubin& cubin, const kiln::Problem& problem,
       const kiln::Arguments& arguments, CUstream stream)
      : module_(cubin.image, cubin.lowered_names) {
    const kiln::jit::Executable executable(op, implementation, frame, cubin);
    if (!executable.fill(call_, problem, arguments))
      throw kiln::Error(kiln::ErrorKind::bad_input, executable.explain_frame(problem, arguments));
    const kiln::spec::Pass& pass = implementation.passes.at(0);
    for (const kiln::spec::Argument& argument : pass.arguments) values_.push_back(value_of(op, argument, arguments));
    for (std::int64_t& value : values_) parameters_.push_back(&value);
    const auto number = [&](const kiln::spec::Expression& expression) {
      return static_cast<unsigned>(expression.evaluate(frame).number);
    };
    config_.gridDimX = number(pass.grid[0]);
    config_.gridDimY = config_.gridDimZ = 1;
    config_.blockDimX = number(pass.block[0]);
    config_.blockDimY = number(pass.block[1]);
    config_.blockDimZ = number(pass.block[2]);
    config_.sharedMemBytes = number(pass.shared);
    config_.hStream = stream;
    module_.allow_shared(0, config_.sharedMemBytes);
  }
  void launch() {
    kiln::cuda::check(
        kiln::cuda::Driver::get().cuLaunchKernelEx(&config_, module_.function(0), parameters_.data(), nullptr),
        "cuLaunchKernelEx");
  }

 private:
  std::int64_t value_of(const kiln::spec::Op& op, const kiln::spec::Argument& argument,
                        const kiln::Arguments& arguments) const {
    const auto index = static_cast<std::size_t>(argument.index);
    if (argument.kind == kiln::spec::ArgumentKind::tensor)
      return reinterpret_cast<std::int64_t>(arguments.tensors[index]);
    const std::size_t first =
        argument.kind == kiln::spec::ArgumentKind::runtime ? static_cast<std::size_t>(op.first_runtime()) : 0;
    return call_.slots[first + index];
  }
  kiln::jit::Module module_;
  kiln::jit::CallFrame call_{};
  std::vector<std::int64_t> values_;
  std::vector<void*> parameters_;
  CUlaunchConfig config_{};
};

kiln::Options options_from(int argc, char** argv) {
  kiln::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--base") options.bases.emplace_back(argv[i + 1]);
    if (std::string_view(argv[i]) == "--overlay") options.overlay = argv[i + 1];
  }
  return options;
}

int measure(int argc, char** argv) {
  const kiln::Options options = options_from(argc, argv);
  const kiln::Engine engine(options);
  const kiln::Op op = engine.op("rms_norm");
  const kiln::Problem problem = op.problem({{"rows", rows}, {"cols", cols}, {"dtype", "bf16"}});
  const kiln::cuda::Context context(options.device);
  const kiln::cuda::Context::Scope scope(context);
  const kiln::cuda::Stream stream;
  const kiln::cuda::Buffer x(rows * cols * 2), weight(cols * 2), y(rows * cols * 2);
  const auto address = [](const kiln::cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); };
  const kiln::Arguments arguments =
      op.arguments({{"x", address(x)}, {"weight", address(weight)}, {"y", address(y)}, {"epsilon", 1e-6}});
  const kiln::Plan plan = op.plan(problem);

  const auto ops = kiln::spec::load_ops({});
  const auto& described =
      *std::find_if(ops.begin(), ops.end(), [](const auto& each) { return each.name == "rms_norm"; });
  const kiln::spec::Implementation& implementation = *described.find(plan.implementation());
  const auto config = *kiln::spec::parse_config(implementation, plan.config());
  const auto frame = kiln::spec::make_frame(described, &implementation, problem, context.info().facts, config);
  kiln::store::Layers layers(
      {.overlay = options.overlay.value_or(kiln::store::default_overlay()), .bases = options.bases});
  kiln::jit::CompilePool pool(1);
  kiln::tune::Cubins cubins(layers, pool);
  const auto cubin = cubins.get(
      kiln::jit::specialise(described, implementation, frame, kiln::jit::default_arch(context.info().facts.sm())));
  Bare bare(described, implementation, frame, cubin.cubin, problem, arguments, stream.handle());

  std::array<Way, 3> ways = {Way{"bare cuLaunchKernelEx", [&] { bare.launch(); }, {}, 0},
                             Way{"Op::launch, hot", [&] { op.launch(problem, arguments, stream.handle()); }, {}, 0},
                             Way{"Plan::launch", [&] { plan.launch(problem, arguments, stream.handle()); }, {}, 0}};
  for (Way& way : ways) {
    time_batch(way, stream.handle());  // warm-up
    way.ns.clear();
    way.ns.reserve(batches);
    way.allocated = 0;
  }
  for (int batch = 0; batch < batches; ++batch)
    for (Way& way : ways) time_batch(way, stream.handle());
  double bare_ns = 0;
  for (Way& way : ways) {
    std::sort(way.ns.begin(), way.ns.end());
    const double median = way.ns[way.ns.size() / 2];
    if (bare_ns == 0) bare_ns = median;
    fmt::print(
        "{{\"bench\":\"hit_latency\",\"way\":\"{}\",\"median_ns\":{:.0f},\"best_ns\":{:.0f},\"over_bare_ns\":{:.0f},\"allocations\":{},\"launches\":{}}}\n",
        way.name, median, way.ns.front(), median - bare_ns, way.allocated, batches * launches_a_batch);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc, argv);
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_hit_latency: {}\n", error.what());
    return 3;
  }
}
