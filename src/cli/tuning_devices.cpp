#include "cli/tuning_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "cuda/device.hpp"
#include "engine/estimate.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

std::vector<int> every_device() {
  std::vector<int> ordinals;
  for (const cuda::DeviceInfo& each : cuda::devices()) ordinals.push_back(each.ordinal);
  return ordinals;
}

std::vector<int> parse_ordinals(const std::string& text) {
  std::vector<int> ordinals;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int ordinal = 0;
    const auto [rest, error] = std::from_chars(at, end, ordinal);
    if (error != std::errc{} || ordinal < 0 || (rest != end && *rest != ','))
      throw Error(ErrorKind::bad_input,
                  fmt::format("--devices is '{}', expected all, or ordinals such as 0,1,3", text));
    if (std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end())
      throw Error(ErrorKind::bad_input, fmt::format("--devices names the device {} twice", ordinal));
    ordinals.push_back(ordinal);
    if (rest == end) return ordinals;
    at = rest + 1;
  }
}

/// What tuning a bucket takes, in nanoseconds, roughly: each candidate is compiled and verified, then timed a few hundred times.
double tuning_ns(const OpBucket& bucket, engine::State& state) {
  const spec::DeviceFacts& facts = state.context.info().facts;
  double candidates = 0;
  for (const spec::Implementation& each : bucket.op->implementations)
    if (!spec::why_not_eligible(*bucket.op, each, bucket.bucket, facts))
      candidates += static_cast<double>(spec::searched_space(*bucket.op, each, bucket.bucket, facts).size());
  constexpr double compile_ns = 50e6, launches = 300;
  return candidates * (compile_ns + launches * engine::expected_ns(*bucket.op, bucket.bucket, facts,
                                                                   state.options.regime, state.layers));
}

}  // namespace

TuningDevices::TuningDevices(const Globals& globals, const std::string& devices, const Options& options) {
  ordinals_ = devices.empty()    ? std::vector{globals.device}
              : devices == "all" ? every_device()
                                 : parse_ordinals(devices);
  if (ordinals_.size() > 1 && options.overlay && options.overlay->empty())
    throw Error(ErrorKind::bad_input, "several devices fill one overlay, so it must be a file: --overlay is empty");
  for (const int ordinal : ordinals_) {
    Options own = options;
    own.device = ordinal;
    if (ordinals_.size() > 1 && own.compile_workers == 0)
      own.compile_workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency() / ordinals_.size()));
    states_.push_back(opened_.emplace_back(std::make_unique<engine::State>(own)).get());
    const std::string device_class = states_.back()->context.info().facts.device_class();
    const auto known = std::find_if(first_of_class_.begin(), first_of_class_.end(), [&](std::size_t first) {
      return states_[first]->context.info().facts.device_class() == device_class;
    });
    class_of_.push_back(static_cast<std::size_t>(known - first_of_class_.begin()));
    if (known == first_of_class_.end()) first_of_class_.push_back(states_.size() - 1);
  }
  say_warnings(globals, first().layers);
}

TuningDevices::TuningDevices(engine::State& state)
    : ordinals_{state.options.device}, states_{&state}, class_of_{0}, first_of_class_{0} {}

void declare_devices(CLI::App& command, std::string& devices) {
  command
      .add_option(
          "--devices", devices,
          "Share the buckets out over these GPUs: all, or ordinals (0,1,3). They fill one overlay; a bucket is tuned once for "
          "each class of device among them")
      ->type_name("all|N,N...");
}

std::vector<OpBucket> longest_first(std::span<const OpBucket> buckets, engine::State& state) {
  std::vector<std::pair<double, OpBucket>> timed;
  for (const OpBucket& bucket : buckets) timed.emplace_back(tuning_ns(bucket, state), bucket);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<OpBucket> order;
  for (const auto& each : timed) order.push_back(each.second);
  return order;
}

}  // namespace kiln::cli
