#include "tune/measure.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "kiln/error.hpp"
#include "tune/bench.hpp"
#include "tune/internal_kernels.hpp"

namespace kiln::tune {
namespace {

constexpr std::size_t slots = 32;        // runs enqueued at once; the driver's queue holds about a thousand operations
constexpr std::int64_t first_batch = 5;  // runs from which the time of one is estimated
constexpr double chain_ns = 60e3;        // long against the microsecond that a chain's ends add
constexpr std::int64_t least_links = 8, most_links = 96;  // of a few passes each: within the driver's queue
constexpr double flush_ns = 40e3;                         // of one flush on an H200
constexpr unsigned flush_threads = 512, flush_blocks = 1056;
constexpr std::int64_t piece_bytes = 16;

// When to rest, measured on an H200:
constexpr double longest_batch_ns = 10e6;  // without a rest
constexpr double unnoticed_ns = 1e6;       // of a batch: below, no rest is needed
constexpr double short_ns = 50e3;          // of one run: below, flushes are rest enough
constexpr double beyond_help_ns = 20e6;    // of one run: above, a rest does not help
constexpr double rest_per_run = 1.5;       // rest over the batch's time

/// Returns which launch runs at this place of the order in which `launches` take turns.
std::size_t whose_turn(std::size_t place, std::size_t launches) {
  const std::size_t round = place / launches, within = place % launches;
  return round % 2 == 0 ? within : launches - 1 - within;
}

}  // namespace

void BatchTime::add(std::span<const double> samples_ns) {
  runs += samples_ns.size();
  ns = std::accumulate(samples_ns.begin(), samples_ns.end(), ns);
}

void in_batches(std::int64_t rounds, double round_ns, const std::function<BatchTime(std::int64_t)>& take) {
  while (rounds > 0) {
    const double fit = round_ns > 0 ? longest_batch_ns / round_ns : 1;
    const std::int64_t now =
        fit < static_cast<double>(rounds) ? std::max(static_cast<std::int64_t>(fit), std::int64_t{1}) : rounds;
    const BatchTime busy = take(now);
    if (busy.runs == 0) return;
    rounds -= now;
    round_ns = std::max(busy.ns / static_cast<double>(now), 1.0);
    const double each_ns = busy.ns / static_cast<double>(busy.runs);
    if (busy.ns >= unnoticed_ns && each_ns >= short_ns && each_ns <= beyond_help_ns)
      std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(rest_per_run * busy.ns));
  }
}

Stopwatch::Stopwatch(const manifest::DeviceFacts& device, Regime regime, const std::string& arch,
                     answer::Cubins& cubins) {
  for (std::size_t i = 0; i < slots; ++i) {
    begins_.emplace_back();
    ends_.emplace_back();
  }
  if (regime != Regime::cold_l2) return;
  const jit::Cubin cubin = cubins.get_and_keep(evict_kernel(arch)).cubin;
  evict_ = std::make_unique<jit::Module>(cubin.image, cubin.lowered_names);
  lines_ = cuda::Buffer(2 * std::max<std::int64_t>(device.l2_bytes(), std::int64_t{1} << 20) + piece_bytes);
  const cuda::Stream stream;  // not the legacy one: another thread may be capturing a graph
  lines_.fill_bytes(0, stream.handle());
  flush(stream.handle());  // loads the kernel, which is not possible behind a closed gate
  stream.synchronize();
}

void Stopwatch::flush(CUstream stream) {
  if (!evict_) return;
  CUdeviceptr data = lines_.pointer();
  long long count = lines_.bytes() / piece_bytes - 1;
  CUdeviceptr sink = data + static_cast<CUdeviceptr>(count * piece_bytes);
  std::array<void*, 3> parameters = {&data, &count, &sink};
  cuda::check(cuda::Driver::get().cuLaunchKernel(evict_->function(0), flush_blocks, 1, 1, flush_threads, 1, 1, 0,
                                                 stream, parameters.data(), nullptr),
              "flushing L2");
}

void Stopwatch::enqueue(const Launch& launch, CUstream stream, std::size_t slot) {
  flush(stream);
  if (before_each_) before_each_(stream);
  begins_[slot].record(stream);
  launch(stream);
  ends_[slot].record(stream);
}

void Stopwatch::hold(CUstream stream, bool& holds, const std::function<void()>& work) {
  if (holds)
    holds = gate_.hold(stream, work);
  else
    work();
}

std::vector<std::vector<double>> Stopwatch::sample(std::span<const Launch> launches, std::int64_t rounds,
                                                   CUstream stream) {
  bool holds = true;
  return sample(launches, rounds, stream, holds);
}

std::vector<std::vector<double>> Stopwatch::sample(std::span<const Launch> launches, std::int64_t rounds,
                                                   CUstream stream, bool& holds) {
  std::vector<std::vector<double>> samples(launches.size());
  const std::size_t total = launches.size() * static_cast<std::size_t>(rounds);
  for (std::size_t begin = 0; begin < total; begin += slots) {
    const std::size_t end = std::min(begin + slots, total);
    hold(stream, holds, [&] {
      for (std::size_t i = begin; i < end; ++i) enqueue(launches[whose_turn(i, launches.size())], stream, i - begin);
    });
    ends_[end - 1 - begin].synchronize();
    for (std::size_t i = begin; i < end; ++i)
      samples[whose_turn(i, launches.size())].push_back(cuda::Event::elapsed_ns(begins_[i - begin], ends_[i - begin]));
  }
  return samples;
}

double Stopwatch::time_chain(const Launch& launch, std::int64_t links, CUstream stream, bool& holds) {
  hold(stream, holds, [&] {
    begins_.front().record(stream);
    for (std::int64_t i = 0; i < links; ++i) launch(stream);
    ends_.front().record(stream);
  });
  ends_.front().synchronize();
  return cuda::Event::elapsed_ns(begins_.front(), ends_.front()) / static_cast<double>(links);
}

std::vector<std::vector<double>> Stopwatch::sample_chains(std::span<const Launch> launches, std::int64_t rounds,
                                                          CUstream stream) {
  std::vector<std::vector<double>> samples(launches.size());
  if (launches.empty()) return samples;
  bool holds = true;
  for (const Launch& launch : launches)
    time_chain(launch, least_links, stream, holds);  // warms instruction caches and clocks
  const double each = std::max(time_chain(launches.front(), least_links, stream, holds), 1.0);
  const auto links = std::clamp(static_cast<std::int64_t>(std::ceil(chain_ns / each)), least_links, most_links);
  for (std::size_t i = 0; i < launches.size() * static_cast<std::size_t>(rounds); ++i) {
    const std::size_t turn = whose_turn(i, launches.size());
    samples[turn].push_back(time_chain(launches[turn], links, stream, holds));
  }
  return samples;
}

Cost Stopwatch::measure(const Launch& launch, CUstream stream, const MeasureLimits& limits) {
  double each_ns = 0;
  bool holds = true;
  const auto take = [&](std::int64_t rounds) {
    std::vector<double> samples;
    in_batches(rounds, each_ns, [&](std::int64_t now) {
      std::vector<double> some = sample({&launch, 1}, now, stream, holds).front();
      std::erase_if(some, [](double ns) { return !is_time(ns); });
      samples.insert(samples.end(), some.begin(), some.end());
      BatchTime busy;
      busy.add(some);
      return busy;
    });
    return samples;
  };
  if (const std::vector<double> first = take(1); !first.empty())
    each_ns = first.front();  // warms instruction caches and clocks
  std::vector<double> samples = take(first_batch);
  if (samples.empty())
    throw Error(ErrorKind::driver_failed, "timing a launch: the driver gives NaN, infinite or negative times");
  const double each = std::max(*std::min_element(samples.begin(), samples.end()), 1000.0) + (evict_ ? flush_ns : 0.0);
  const auto wanted =
      std::clamp(static_cast<std::int64_t>(limits.budget_ns / each), limits.minimum_samples, limits.maximum_samples);
  const std::vector<double> rest =
      take(std::max<std::int64_t>(0, (wanted | 1) - first_batch));  // odd: the median is a sample
  samples.insert(samples.end(), rest.begin(), rest.end());
  return summarise(samples);
}

}  // namespace kiln::tune
