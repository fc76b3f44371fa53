#include "tune/measure.hpp"

#include <algorithm>

namespace kiln::tune {
namespace {

constexpr double far_out_of_reach = 4;  // times the best median, in one run that was not warm
constexpr std::size_t first_batch = 5;  // also what the estimate of one run comes from

}  // namespace

Stopwatch::Stopwatch(const spec::DeviceFacts& device, Regime regime) : regime_(regime) {
  if (regime_ == Regime::cold_l2)
    flush_ = cuda::Buffer(2 * std::max<std::int64_t>(device.l2_bytes(), std::int64_t{1} << 20));
}

void Stopwatch::enqueue(const std::function<void(CUstream)>& launch, CUstream stream, std::size_t sample) {
  while (begins_.size() <= sample) {
    begins_.emplace_back();
    ends_.emplace_back();
  }
  // The flush also keeps the device busy while the host enqueues what follows, so that host time does not enter.
  if (flush_.bytes() > 0) flush_.fill_bytes(0, stream);
  begins_[sample].record(stream);
  launch(stream);
  ends_[sample].record(stream);
}

void Stopwatch::collect(std::size_t begin, std::size_t end, std::vector<double>& samples) {
  ends_[end - 1].synchronize();
  for (std::size_t i = begin; i < end; ++i) samples.push_back(cuda::Event::elapsed_ns(begins_[i], ends_[i]));
}

Cost Stopwatch::measure(const std::function<void(CUstream)>& launch, CUstream stream, const MeasureLimits& limits,
                        double best_ns) {
  // Warm-up: instruction caches, and clocks when the device was idle. It also tells at once what is far out of reach.
  std::vector<double> samples;
  enqueue(launch, stream, 0);
  collect(0, 1, samples);
  if (samples.front() > far_out_of_reach * best_ns) return summarise(samples);
  samples.clear();
  for (std::size_t i = 0; i < first_batch; ++i) enqueue(launch, stream, i);
  collect(0, first_batch, samples);
  const double fastest = *std::min_element(samples.begin(), samples.end());
  if (fastest > limits.hopeless * best_ns) return summarise(samples);
  const double each =
      std::max(fastest, 1000.0) + (flush_.bytes() > 0 ? 40e3 : 0.0);  // a flush takes about 40 us on an H200
  const auto wanted =
      std::clamp(static_cast<std::int64_t>(limits.budget_ns / each), limits.minimum_samples, limits.maximum_samples);
  const auto total = static_cast<std::size_t>(wanted) | 1U;  // odd: the median is a sample
  for (std::size_t i = first_batch; i < total; ++i) enqueue(launch, stream, i);
  collect(first_batch, total, samples);
  return summarise(samples);
}

}  // namespace kiln::tune
