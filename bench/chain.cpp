// A chain of small ops as a decode step has them: rms_norm -> gemm -> softmax, each reading what the one before it wrote.
//
//   bench_chain --overlay FILE [ROWS...]
//
// bf16, rows 1 to 128, rms_norm of 4096 columns, gemm of k = 4096 to n = 4096 or 1024, softmax over n. What FILE lacks is tuned into it. Two
// engines: one serves its records as they are, the other a copy of them in which no launch may begin early. Each chain is compared with a
// float64 one on the host, and timed only if it is right. One JSON object a line; the ways take turns, times are of one chain:
//   ns          events around chains that the host enqueues as it can
//   device_ns   the same with the stream held back until all are enqueued
//   host_ns     what enqueueing takes the host
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "captured.hpp"
#include "chain_data.hpp"
#include "cuda/device.hpp"
#include "cuda/gate.hpp"
#include "kiln/kiln.hpp"
#include "manifest/variant.hpp"
#include "row.hpp"
#include "store/file.hpp"
#include "tune/search.hpp"

namespace {

using kiln::bench::Chain;
using kiln::bench::ChainData;
using kiln::cuda::check;
using kiln::cuda::Driver;

constexpr int chains_a_batch = 96;  // of three or four kernels each: within the driver's queue
constexpr int chains_a_step = 16;   // of a graph that stands for a step of so many layers
constexpr int batches = 41;

struct Settings {
  std::filesystem::path overlay;
  std::vector<std::int64_t> rows;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--overlay" && i + 1 < argc)
      settings.overlay = argv[++i];
    else
      settings.rows.push_back(std::stoll(argv[i]));
  }
  if (settings.overlay.empty())
    throw kiln::Error(kiln::ErrorKind::bad_input, "no --overlay FILE: records are tuned into it");
  if (settings.rows.empty()) settings.rows = {1, 2, 4, 8, 16, 32, 64, 128};
  return settings;
}

/// The records of a file with every launch as the manifests' defaults have it; gone with this.
class PlainCopy {
 public:
  explicit PlainCopy(const std::filesystem::path& tuned)
      : path_(tuned.string() + fmt::format(".plain-{}", getpid())) {  // in a folder that an overlay may lie in
    const auto from = kiln::store::File::open(tuned, kiln::store::Access::read_only);
    std::vector<kiln::store::Record> records;
    for (const kiln::manifest::Op& op : kiln::manifest::load_ops({}))
      for (kiln::store::Record& record : from->records(op.name)) {
        for (kiln::store::Choice& choice : record.choices) {
          const kiln::manifest::Implementation* implementation = op.find(choice.implementation);
          if (implementation == nullptr) continue;
          auto config = kiln::manifest::parse_config(*implementation, choice.config);
          if (!config) continue;
          config = kiln::manifest::kernel_config(*implementation, std::move(*config));
          choice.config = kiln::manifest::to_string(*implementation, *config);
        }
        records.push_back(std::move(record));
      }
    const auto to = kiln::store::File::open(path_, kiln::store::Access::read_write);
    to->put_all(records, from->cubins());
  }
  ~PlainCopy() {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_.string() + suffix, ignored);
  }
  PlainCopy(const PlainCopy&) = delete;
  PlainCopy& operator=(const PlainCopy&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// So many chains, captured once.
kiln::bench::Captured capture(const Chain& chain, int chains, CUstream stream) {
  return {stream, [&] {
            for (int i = 0; i < chains; ++i) chain.launch(stream);
          }};
}

struct Way {
  const char* name;
  const char* pdl;
  const Chain* chain;
  int chains;  // a launch of it
  std::function<void(CUstream)> launch;
  double worst_error = 0;
  std::vector<double> ns{}, device_ns{}, host_ns{};
};

class Timer {
 public:
  /// Nanoseconds a chain, by events and by the host's clock.
  void time(Way& way) {
    const auto begun = std::chrono::steady_clock::now();
    enqueue(way);
    way.host_ns.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun).count() /
                          chains_a_batch);
    way.ns.push_back(elapsed_ns());
    gate_.close(stream_.handle());
    enqueue(way);
    gate_.open();
    way.device_ns.push_back(elapsed_ns());
  }
  [[nodiscard]] CUstream stream() const noexcept { return stream_.handle(); }

 private:
  void enqueue(const Way& way) const {
    begin_.record(stream_.handle());
    for (int i = 0; i < chains_a_batch; i += way.chains) way.launch(stream_.handle());
    end_.record(stream_.handle());
  }
  [[nodiscard]] double elapsed_ns() const {
    end_.synchronize();
    return kiln::cuda::Event::elapsed_ns(begin_, end_) / chains_a_batch;
  }
  kiln::cuda::Stream stream_;
  kiln::cuda::Event begin_, end_;
  kiln::cuda::Gate gate_;
};

void report(Way& way, std::int64_t rows, std::int64_t n) {
  const kiln::tune::Cost ns = kiln::tune::summarise(way.ns), device = kiln::tune::summarise(way.device_ns),
                         host = kiln::tune::summarise(way.host_ns);
  fmt::print(
      "{},\"rows\":{},\"n\":{},\"way\":\"{}\",\"pdl\":\"{}\",\"ns\":{:.0f},\"device_ns\":{:.0f},\"device_low_ns\":{:.0f},\"device_high_ns\":{:.0f},"
      "\"host_ns\":{:.0f},\"worst_error\":{:.3g},\"configs\":\"{}\"}}\n",
      bench::compiled_row("chain"), rows, n, way.name, way.pdl, ns.median_ns, device.median_ns, device.low_ns,
      device.high_ns, host.median_ns, way.worst_error, way.chain->configs());
  std::fflush(stdout);
}

void measure(const kiln::Engine& plain, const kiln::Engine& tuned, ChainData& data, std::int64_t rows, std::int64_t n) {
  Timer timer;
  const Chain off(plain, data, rows, n, timer.stream()), on(tuned, data, rows, n, timer.stream());
  const kiln::bench::Captured off_graph = capture(off, 1, timer.stream()), on_graph = capture(on, 1, timer.stream());
  const kiln::bench::Captured off_step = capture(off, chains_a_step, timer.stream()),
                              on_step = capture(on, chains_a_step, timer.stream());
  const auto graph = [](const kiln::bench::Captured& of) { return [&of](CUstream stream) { of.launch(stream); }; };
  std::vector<Way> ways;
  ways.push_back({"eager", "off", &off, 1, [&](CUstream stream) { off.launch(stream); }});
  ways.push_back({"eager", "tuned", &on, 1, [&](CUstream stream) { on.launch(stream); }});
  ways.push_back({"graph", "off", &off, 1, graph(off_graph)});
  ways.push_back({"graph", "tuned", &on, 1, graph(on_graph)});
  ways.push_back({"graph of 16", "off", &off, chains_a_step, graph(off_step)});
  ways.push_back({"graph of 16", "tuned", &on, chains_a_step, graph(on_step)});
  for (Way& way : ways) {
    data.poison(timer.stream());
    way.launch(timer.stream());
    way.worst_error = data.verify(rows, n, timer.stream(), fmt::format("{}, PDL {}", way.name, way.pdl));
    timer.time(way);  // warm-up
    way.ns.clear(), way.device_ns.clear(), way.host_ns.clear();
  }
  for (int batch = 0; batch < batches; ++batch)
    for (Way& way : ways) timer.time(way);
  for (Way& way : ways) report(way, rows, n);
}

int run(const Settings& settings) {
  kiln::Options options;
  options.overlay = settings.overlay;
  const kiln::Engine tuned(options);
  const kiln::cuda::Context context(options.device);
  const kiln::cuda::Context::Scope scope(context);
  ChainData data(settings.rows);
  {
    const kiln::cuda::Stream stream;
    for (const std::int64_t n : kiln::bench::widths)
      for (const std::int64_t rows : settings.rows) Chain(tuned, data, rows, n, stream.handle());
  }
  const PlainCopy copy(settings.overlay);
  options.overlay = copy.path();
  options.on_miss = kiln::MissPolicy::error;
  const kiln::Engine plain(options);
  for (const std::int64_t n : kiln::bench::widths)
    for (const std::int64_t rows : settings.rows) measure(plain, tuned, data, rows, n);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_chain: {}\n", error.what());
    return error.kind() == kiln::ErrorKind::wrong_result ? 1 : 3;
  }
}
