// What a service notices of tuning in the background: requests that arrive at a fixed rate, each of a few launches, and how long
// each takes from its arrival until its stream is done.
//
//   bench_background [--base FILE]... [--worker PROGRAM] [--rate REQUESTS_PER_SECOND] [--seconds S] [--limit S] [--shares A,B,...]
//                    [--width N]
//
// First with everything tuned (by the bases; what they lack is tuned before), then with stand-ins, both with nothing beside them, for S
// seconds each; then for each share with policy background from an empty overlay, until all is tuned or the limit is over. Stand-ins are
// loaded before the first request, as a service does. One JSON object a line. A request that waits for the one before it counts that wait.
// Google Benchmark does not fit: requests arrive at a fixed rate, whatever the last one took.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/kiln.hpp"
#include "row.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t longest = 512;
constexpr std::int64_t element_bytes = 2;

struct Arguments {
  kiln::Options options;
  double rate = 2000;
  double seconds = 5;
  double limit = 14;
  std::int64_t width = 4096;
  std::vector<double> shares = {0.01, 0.05, 0.2};
};

std::vector<double> numbers(const std::string& text) {
  std::vector<double> values;
  for (std::size_t at = 0; at <= text.size(); at = std::min(text.find(',', at), text.size()) + 1)
    values.push_back(std::stod(text.substr(at)));
  return values;
}

Arguments parse(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("{} has no value", name));
    const std::string value = argv[i + 1];
    if (name == "--base")
      result.options.bases.emplace_back(value);
    else if (name == "--worker")
      result.options.worker = value;
    else if (name == "--rate")
      result.rate = std::stod(value);
    else if (name == "--seconds")
      result.seconds = std::stod(value);
    else if (name == "--limit")
      result.limit = std::stod(value);
    else if (name == "--width")
      result.width = std::stoll(value);
    else if (name == "--shares")
      result.shares = numbers(value);
    else
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("'{}' is no option", name));
  }
  return result;
}

/// Lengths as a decoding service meets them: mostly short batches, now and then a prompt. The same ones in each way.
class Lengths {
 public:
  std::int64_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    const auto draw = static_cast<std::int64_t>(state_ >> 33);
    const std::int64_t kind = draw % 100;
    const std::int64_t high = kind < 80 ? 8 : kind < 97 ? 64 : longest;
    return high - (draw / 100) % (high / 2);  // within one bucket: high/2 + 1 to high
  }

 private:
  std::uint64_t state_ = 20261121;
};

/// Device memory for the largest request.
struct Tensors {
  Tensors(std::int64_t columns, CUstream stream)
      : width(columns),
        x(longest * width * element_bytes),
        normal(longest * width * element_bytes),
        y(longest * width * element_bytes),
        weight(width * element_bytes),
        w(width * width * element_bytes) {
    for (const kiln::cuda::Buffer* each : {&x, &normal, &y, &weight, &w}) each->fill_bytes(0, stream);
  }

  std::int64_t width;
  kiln::cuda::Buffer x, normal, y, weight, w;
};

const void* address(const kiln::cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); }

/// One request: a norm and a projection of `rows` tokens, on one stream.
class Service {
 public:
  Service(const kiln::Engine& engine, const Tensors& tensors, CUstream stream)
      : norm_(engine.op("rms_norm")),
        gemm_(engine.op("gemm")),
        norm_problem_(norm_.problem({{"rows", 1}, {"cols", tensors.width}, {"dtype", "bf16"}})),
        gemm_problem_(
            gemm_.problem({{"m", 1}, {"n", tensors.width}, {"k", tensors.width}, {"dtype", "bf16"}, {"layout", "nt"}})),
        norm_arguments_(norm_.arguments({{"x", address(tensors.x)},
                                         {"weight", address(tensors.weight)},
                                         {"y", address(tensors.normal)},
                                         {"epsilon", 1e-6}})),
        gemm_arguments_(
            gemm_.arguments({{"x", address(tensors.normal)}, {"w", address(tensors.w)}, {"y", address(tensors.y)}})),
        stream_(stream) {}

  void set(std::int64_t rows) {
    norm_problem_[norm_.axis("rows")] = rows;
    gemm_problem_[gemm_.axis("m")] = rows;
  }
  void make_ready() {
    for (const std::int64_t rows : {std::int64_t{8}, std::int64_t{64}, longest}) {
      set(rows);
      norm_.plan(norm_problem_, stream_);
      gemm_.plan(gemm_problem_, stream_);
      serve();
    }
  }
  void serve() const {
    norm_.launch(norm_problem_, norm_arguments_, stream_);
    gemm_.launch(gemm_problem_, gemm_arguments_, stream_);
    kiln::cuda::check(kiln::cuda::Driver::get().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  kiln::Op norm_, gemm_;
  kiln::Problem norm_problem_, gemm_problem_;
  kiln::Arguments norm_arguments_, gemm_arguments_;
  CUstream stream_;
};

struct Measured {
  std::vector<double> us;  // sorted
  double seconds = 0;
  std::optional<double> all_tuned_s;
  kiln::Stats stats;

  [[nodiscard]] double percentile(double of) const {
    return us.empty() ? 0 : us[std::min(us.size() - 1, static_cast<std::size_t>(of * static_cast<double>(us.size())))];
  }
};

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// `until_tuned`: only as long as something is tuned beside it.
Measured run(const kiln::Engine& engine, Service& service, double rate, double seconds, bool until_tuned) {
  constexpr std::int64_t between_looks = 64;
  Lengths lengths;
  Measured measured;
  measured.us.reserve(static_cast<std::size_t>(rate * seconds) + 1);
  const auto begun = Clock::now();
  for (std::int64_t i = 0;; ++i) {
    const auto arrival = begun + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(static_cast<double>(i) / rate));
    service.set(lengths.next());
    while (Clock::now() < arrival) {
    }
    service.serve();
    measured.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - arrival).count());
    if (i % between_looks != 0) continue;
    measured.seconds = seconds_since(begun);
    if (until_tuned && engine.stats().waiting == 0) measured.all_tuned_s = measured.seconds;
    if (measured.all_tuned_s || measured.seconds > seconds) break;
  }
  measured.stats = engine.stats();
  std::sort(measured.us.begin(), measured.us.end());
  return measured;
}

void print(std::string_view way, double rate, double share, const Measured& measured) {
  const kiln::Stats& stats = measured.stats;
  const std::string tuned = measured.all_tuned_s ? fmt::format("{:.2f}", *measured.all_tuned_s) : "null";
  fmt::print(
      "{},\"way\":\"{}\",\"share\":{},\"rate\":{},\"requests\":{},\"seconds\":{:.2f},\"p50_us\":{:.1f},\"p99_us\":{:.1f},"
      "\"p99.9_us\":{:.1f},\"max_us\":{:.1f},\"tuner_share\":{:.4f},\"all_tuned_s\":{},\"tunes\":{},\"waiting\":{},\"stand_ins\":{},\"hits\":{}}}\n",
      bench::compiled_row("background"), way, share, rate, measured.us.size(), measured.seconds,
      measured.percentile(0.5), measured.percentile(0.99), measured.percentile(0.999), measured.us.back(),
      stats.tuning_ns * 1e-9 / measured.seconds, tuned, stats.tunes, stats.waiting, stats.nearest + stats.default_,
      stats.hot + stats.overlay + stats.base);
  std::fflush(stdout);
}

/// A warning is said, since without a worker nothing would be tuned.
void say(const kiln::Engine& engine) {
  for (const std::string& warning : engine.warnings()) fmt::print(stderr, "bench_background: {}\n", warning);
}

void measure(const Arguments& asked) {
  const kiln::cuda::Context context(asked.options.device);
  const kiln::cuda::Context::Scope scope(context);
  const kiln::cuda::Stream stream;
  const Tensors tensors(asked.width, stream.handle());
  const auto one_way = [&](std::string_view way, kiln::Options options, double share, double seconds) {
    options.overlay = "";
    const bool beside = options.on_miss == kiln::MissPolicy::background;
    if (beside) options.background_share = share;
    const kiln::Engine engine(options);
    Service service(engine, tensors, stream.handle());
    service.make_ready();
    print(way, asked.rate, share, run(engine, service, asked.rate, seconds, beside));
    say(engine);
  };
  kiln::Options options = asked.options;
  options.on_miss = kiln::MissPolicy::tune;
  one_way("tuned, nothing beside", options, 0, asked.seconds);
  options.bases.clear();
  options.on_miss = kiln::MissPolicy::nearest;
  one_way("stand-ins, nothing beside", options, 0, asked.seconds);
  options.on_miss = kiln::MissPolicy::background;
  for (const double share : asked.shares) one_way("stand-ins, tuned in the background", options, share, asked.limit);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    measure(parse(argc, argv));
    return 0;
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_background: {}\n", error.what());
    return 3;
  }
}
