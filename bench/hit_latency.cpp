// Host time of a hot launch over a bare cuLaunchKernelEx of the same kernels, or cublasLtMatmul where a library has the plan, with the same
// arguments, stage by stage and by threads.
//
//   bench_hit_latency [--base FILE]... [--overlay FILE] [--templates FOLDER]... ["OP axis=value..."]...
//
// The ways take turns batch by batch, each as often first as any other, the stream synchronised between batches outside the timed span, so
// that the queue never fills and drift meets all alike; what a way costs over bare is the median of its differences to the bare batch of the
// same round. The host launches for half a second before it measures, since its clock rises for as long. Stages are timed alone, in larger
// batches that take turns too, with all that they read in cache. Hosts change their clock, or give a neighbour half of a core: lines are
// compared by multiply_ns, a multiplication in a chain of them between the batches, which is three cycles of most processors. With several threads each has a
// stream and arguments of its own, all on one engine, and each way is timed in all of them at once. Threads wait for each other in the driver: what
// any work between two launches costs there, the way "bare after 50 multiplications" says, which touches no memory.
// Google Benchmark does not fit: the ways take turns, and a way is compared with the bare launches of its round.
// Over tests/fake_cuda with FAKE_CUDA="footprint 131072" a launch takes as long as a real one (2.5 to 3 us) and evicts as much from the
// nearest caches: no GPU is needed to see what a hit costs that finds its code and data cold. Only ratios to another build's mean something.
// One JSON object a line: bench "hit_latency" (way, threads, median and best nanoseconds a launch over all batches; over_bare_ns; ratio of
// medians; allocations; multiply_ns), then bench "hit_stages" (median nanoseconds of each stage; multiply_ns).
#include <fmt/format.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <new>
#include <span>
#include <thread>

#include "command_line.hpp"
#include "hot_call.hpp"
#include "row.hpp"

namespace {

thread_local std::size_t allocations = 0;  // counted by operator new below

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using bench::HotCall;
using Launch = void (HotCall::*)() const;

constexpr int launches_a_batch = 200;
constexpr std::size_t batches = 156;  // as often of each order
constexpr int stage_calls_a_batch = 2000;
constexpr int stage_batches = 101;
constexpr std::array<int, 4> thread_counts = {1, 2, 4, 8};

struct Way {
  const char* name;
  Launch launch;
};
constexpr std::array<Way, 6> ways = {Way{"bare cuLaunchKernelEx", &HotCall::launch_bare},
                                     Way{"Op::launch, hot", &HotCall::launch_op},
                                     Way{"Plan::launch", &HotCall::launch_plan},
                                     Way{"Op::bind, Op::launch", &HotCall::launch_bound},
                                     Way{"kiln_launch", &HotCall::launch_from_c},
                                     Way{"bare after 50 multiplications", &HotCall::launch_bare_after_work}};

double time_ns(const HotCall& call, Launch launch, int count) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) (call.*launch)();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - begin).count() / count;
}

/// What one multiplication takes that waits for the one before: so many cycles, whatever else the host does.
double multiply_ns() {
  constexpr int count = 2000;
  const auto begin = std::chrono::steady_clock::now();
  bench::multiply(count);
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - begin).count() / count;
}

double median_of(std::vector<double>& ns) {
  std::sort(ns.begin(), ns.end());
  return ns[ns.size() / 2];
}

/// What one thread measured of each way.
struct Measured {
  std::array<std::vector<double>, ways.size()> ns;
  std::array<std::size_t, ways.size()> allocated{};
  std::vector<double> multiply_ns;
};

void warm_up(const HotCall& call) {
  constexpr auto enough = std::chrono::milliseconds(500);
  const auto end = std::chrono::steady_clock::now() + enough;
  for (std::size_t way = 0; std::chrono::steady_clock::now() < end; way = (way + 1) % ways.size()) {
    (void)time_ns(call, ways[way].launch, launches_a_batch);
    kiln::cuda::check(kiln::cuda::Driver::get().cuStreamSynchronize(call.stream), "cuStreamSynchronize");
  }
}

void measure_ways(const HotCall& call, std::barrier<>& together, Measured& measured) {
  for (auto& each : measured.ns) each.reserve(batches);
  measured.multiply_ns.reserve(batches);
  warm_up(call);
  for (std::size_t batch = 0; batch < batches; ++batch) {
    measured.multiply_ns.push_back(multiply_ns());
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const std::size_t way = (batch + turn) % ways.size();
      together.arrive_and_wait();
      const std::size_t before = allocations;
      const double ns = time_ns(call, ways[way].launch, launches_a_batch);
      measured.allocated[way] += allocations - before;
      measured.ns[way].push_back(ns);
      kiln::cuda::check(kiln::cuda::Driver::get().cuStreamSynchronize(call.stream), "cuStreamSynchronize");
    }
  }
}

void bench_ways(bench::Setting& setting, const bench::Asked& asked, int thread_count) {
  std::vector<kiln::cuda::Stream> streams(static_cast<std::size_t>(thread_count));
  std::vector<std::unique_ptr<HotCall>> calls;
  for (const kiln::cuda::Stream& stream : streams)
    calls.push_back(
        std::make_unique<HotCall>(setting, asked, stream.handle(), calls.empty() ? nullptr : calls.front().get()));
  std::vector<Measured> measured(streams.size());
  std::barrier together(thread_count);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < streams.size(); ++i)
    threads.emplace_back([&, i] {
      const kiln::cuda::Context::Scope scope(setting.context);
      measure_ways(*calls[i], together, measured[i]);
    });
  threads.clear();
  std::vector<double> multiplied;
  for (const Measured& each : measured)
    multiplied.insert(multiplied.end(), each.multiply_ns.begin(), each.multiply_ns.end());
  const double multiply = median_of(multiplied);
  double bare_ns = 0;
  for (std::size_t way = 0; way < ways.size(); ++way) {
    std::vector<double> ns, over_bare;
    std::size_t allocated = 0;
    for (const Measured& each : measured) {
      ns.insert(ns.end(), each.ns[way].begin(), each.ns[way].end());
      std::transform(each.ns[way].begin(), each.ns[way].end(), each.ns[0].begin(), std::back_inserter(over_bare),
                     std::minus<>());
      allocated += each.allocated[way];
    }
    const double median = median_of(ns);
    if (way == 0) bare_ns = median;
    fmt::print(
        "{},\"op\":\"{}\",\"implementation\":\"{}\",\"passes\":{},\"way\":\"{}\",\"threads\":{},"
        "\"median_ns\":{:.0f},\"best_ns\":{:.0f},\"over_bare_ns\":{:.0f},\"ratio\":{:.3f},\"allocations\":{},\"launches\":{},\"multiply_ns\":{:.3f}}}\n",
        bench::compiled_row("hit_latency"), asked.op, calls[0]->plan.implementation(), calls[0]->passes(),
        way == 0 && calls[0]->is_library() ? "bare cublasLtMatmul" : ways[way].name, thread_count, median, ns.front(),
        median_of(over_bare), median / bare_ns, allocated, batches * launches_a_batch * thread_count, multiply);
  }
}

struct Stage {
  const char* name;
  Launch stage;
};
constexpr std::array<Stage, 7> stages = {
    Stage{"nothing", &HotCall::do_nothing}, Stage{"bucket_ns", &HotCall::find_bucket},
    Stage{"look_up_ns", &HotCall::look_up}, Stage{"frame_ns", &HotCall::fill_frame},
    Stage{"admission_ns", &HotCall::admit}, Stage{"geometry_and_arguments_ns", &HotCall::arrange},
    // What the cache saves: descriptors of more addresses than it keeps are made by the driver each time.
    Stage{"geometry_arguments_and_new_descriptor_ns", &HotCall::arrange_elsewhere}};

void bench_stages(bench::Setting& setting, const bench::Asked& asked) {
  const kiln::cuda::Stream stream;
  const HotCall call(setting, asked, stream.handle());
  const std::span<const Stage> timed =
      std::span(stages).first(call.has_descriptors() ? stages.size() : stages.size() - 1);
  std::array<std::vector<double>, stages.size()> ns;
  std::vector<double> multiplied;
  for (int batch = 0; batch < stage_batches; ++batch) {
    multiplied.push_back(multiply_ns());
    for (std::size_t i = 0; i < timed.size(); ++i) ns[i].push_back(time_ns(call, timed[i].stage, stage_calls_a_batch));
  }
  const double nothing = median_of(ns[0]);
  fmt::print("{},\"op\":\"{}\"", bench::compiled_row("hit_stages"), asked.op);
  for (std::size_t i = 1; i < timed.size(); ++i)
    fmt::print(",\"{}\":{:.1f}", timed[i].name, median_of(ns[i]) - nothing);
  fmt::print(",\"multiply_ns\":{:.3f}}}\n", median_of(multiplied));
}

int measure(int argc, char** argv) {
  kiln::Options options;
  std::vector<bench::Asked> asked;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (bench::take_file(argc, argv, i, options)) continue;
    if (word == "--templates" && i + 1 < argc)
      options.template_paths.emplace_back(argv[++i]);
    else if (word.starts_with("--"))
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} is no option, or lacks its value", word));
    else
      asked.push_back(bench::Asked::parse(word));
  }
  // Short, so that the device keeps up with the host.
  if (asked.empty()) asked.push_back(bench::Asked::parse("rms_norm rows=8 cols=4096 dtype=bf16"));
  bench::Setting setting(options);
  for (const bench::Asked& each : asked) {
    for (const int threads : thread_counts) bench_ways(setting, each, threads);
    bench_stages(setting, each);
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
