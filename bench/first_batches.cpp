// The first batches of a service: new lengths through the layers' ops of Llama 3 8B as transformers runs them, with query, key, value,
// gate and up as products of their own.
//
//   bench_first_batches [--base FILE]... [--prewarmed FILE]... [--worker PROGRAM] [--lengths N] [--median TOKENS] [--ahead N] [--only WAY]
//
// One way after another, each with an engine of its own under policy nearest:
//   nothing      an empty overlay, no base
//   records      an empty overlay, the bases of --base
//   again        the overlay that the last of these left: all machine code is there
//   prewarmed    an empty overlay, the bases of --prewarmed
// Lengths are lognormal (sigma 1), each once, the same in each way. A batch is 13 launches and a wait for the stream. One JSON object a way,
// with the time from the first launch on after some of the batches; on standard error, what the engine logs, and when. --ahead: Options::compile_ahead. Google Benchmark does not fit: each
// batch is launched once.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "cuda/device.hpp"
#include "kiln/kiln.hpp"
#include "row.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t hidden = 4096, intermediate = 14336, heads = 32, key_heads = 8, head_dim = 128;
constexpr std::int64_t longest = 8192, element_bytes = 2;

struct Settings {
  kiln::Options options;
  std::vector<std::filesystem::path> prewarmed;
  std::string only;
  int lengths = 58;
  int median = 512;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view word = argv[i];
    if (i + 1 == argc) bench::refuse(fmt::format("{} is given without a value", word));
    const std::string_view value = argv[i + 1];
    if (word == "--base")
      settings.options.bases.emplace_back(value);
    else if (word == "--prewarmed")
      settings.prewarmed.emplace_back(value);
    else if (word == "--worker")
      settings.options.worker = value;
    else if (word == "--lengths")
      settings.lengths = bench::number(value);
    else if (word == "--median")
      settings.median = bench::number(value);
    else if (word == "--ahead")
      settings.options.compile_ahead = value == "0" ? 0 : bench::number(value);
    else if (word == "--only")
      settings.only = value;
    else
      bench::refuse(fmt::format("'{}' is no option", word));
  }
  settings.options.on_miss = kiln::MissPolicy::nearest;
  return settings;
}

/// A number from 0 to 1, both excluded.
double uniform(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
}

std::vector<std::int64_t> draw_lengths(const Settings& settings) {
  std::uint64_t state = 20261127;
  std::vector<std::int64_t> lengths;
  while (lengths.size() < static_cast<std::size_t>(settings.lengths)) {
    const double radius = std::sqrt(-2 * std::log(uniform(state)));
    const double normal = radius * std::cos(2 * std::numbers::pi * uniform(state));
    const auto length = std::clamp<std::int64_t>(std::llround(settings.median * std::exp(normal)), 1, longest);
    if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) lengths.push_back(length);
  }
  return lengths;
}

/// Device memory that all launches share: what they compute does not matter.
struct Tensors {
  explicit Tensors(CUstream stream)
      : x(longest * intermediate * element_bytes),
        other(longest * intermediate * element_bytes),
        y(longest * intermediate * element_bytes),
        weight(intermediate * hidden * element_bytes),
        positions(longest * 4),
        table(2 * longest * head_dim * 4) {
    for (const kiln::cuda::Buffer* each : {&x, &other, &y, &weight, &positions, &table}) each->fill_bytes(0, stream);
  }
  kiln::cuda::Buffer x, other, y, weight, positions, table;
};

const void* address(const kiln::cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); }

/// One launch of a layer, of any number of tokens.
struct Launch {
  kiln::Op op;
  kiln::AxisId tokens;
  kiln::Problem problem;
  kiln::Arguments arguments;

  /// Says so where it took longer than a launch of anything that is ready.
  void operator()(std::int64_t length, CUstream stream) {
    problem[tokens] = length;
    const auto begun = Clock::now();
    op.launch(problem, arguments, stream);
    const std::chrono::duration<double, std::milli> took = Clock::now() - begun;
    if (took.count() > 3) fmt::print(stderr, "launch of {} at {} tokens: {:.1f} ms\n", op.name(), length, took.count());
  }
};

class Layer {
 public:
  Layer(const kiln::Engine& engine, const Tensors& of) {
    add_norm(engine, of, "none");
    for (const std::int64_t n : {hidden, key_heads * head_dim, key_heads * head_dim})
      add_product(engine, of, n, hidden);
    add_rotary(engine, of, heads);
    add_rotary(engine, of, key_heads);
    add_product(engine, of, hidden, hidden);
    add_norm(engine, of, "add");
    for (int i = 0; i < 2; ++i) add_product(engine, of, intermediate, hidden);
    add_swiglu(engine, of);
    add_product(engine, of, hidden, intermediate);
    add_norm(engine, of, "add");  // of the next layer
  }
  void run(std::int64_t length, CUstream stream) {
    for (Launch& each : launches_) each(length, stream);
    kiln::cuda::check(kiln::cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

 private:
  void add(kiln::Op op, const char* tokens, kiln::Problem problem, kiln::Arguments arguments) {
    const kiln::AxisId axis = op.axis(tokens);
    launches_.push_back({std::move(op), axis, problem, arguments});
  }
  void add_norm(const kiln::Engine& engine, const Tensors& of, const char* residual) {
    const kiln::Op op = engine.op("rms_norm");
    kiln::Arguments arguments =
        op.arguments({{"x", address(of.x)}, {"weight", address(of.weight)}, {"y", address(of.y)}, {"epsilon", 1e-6}});
    if (std::string_view(residual) == "add") {
      arguments.set(op.tensor("residual_in"), address(of.other));
      arguments.set(op.tensor("sum"), address(of.other));
    }
    add(op, "rows", op.problem({{"rows", 1}, {"cols", hidden}, {"dtype", "bf16"}, {"residual", residual}}), arguments);
  }
  void add_product(const kiln::Engine& engine, const Tensors& of, std::int64_t n, std::int64_t k) {
    const kiln::Op op = engine.op("gemm");
    add(op, "m", op.problem({{"m", 1}, {"n", n}, {"k", k}, {"dtype", "bf16"}, {"layout", "nt"}}),
        op.arguments({{"x", address(of.x)}, {"w", address(of.weight)}, {"y", address(of.y)}}));
  }
  void add_rotary(const kiln::Engine& engine, const Tensors& of, std::int64_t of_heads) {
    const kiln::Op op = engine.op("rotary");
    add(op, "tokens",
        op.problem(
            {{"tokens", 1}, {"heads", of_heads}, {"dim", head_dim}, {"rotary_dim", head_dim}, {"dtype", "bf16"}}),
        op.arguments({{"x", address(of.x)},
                      {"cos", address(of.table)},
                      {"sin", address(of.table)},
                      {"positions", address(of.positions)},
                      {"y", address(of.y)}}));
  }
  void add_swiglu(const kiln::Engine& engine, const Tensors& of) {
    const kiln::Op op = engine.op("swiglu");
    add(op, "rows", op.problem({{"rows", 1}, {"cols", intermediate}, {"dtype", "bf16"}}),
        op.arguments({{"gate", address(of.x)}, {"up", address(of.other)}, {"y", address(of.y)}}));
  }

  std::vector<Launch> launches_;
};

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "kiln-first-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw kiln::Error(kiln::ErrorKind::io, "no folder can be made in " + name);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path path;
};

class Contest {
 public:
  explicit Contest(const Settings& settings)
      : settings_(settings), lengths_(draw_lengths(settings)), tensors_(stream_.handle()) {}

  void run_all() {
    run("nothing", {}, "nothing.kiln");
    if (!settings_.options.bases.empty()) run("records", settings_.options.bases, "records.kiln");
    run("again", settings_.options.bases, settings_.options.bases.empty() ? "nothing.kiln" : "records.kiln");
    if (!settings_.prewarmed.empty()) run("prewarmed", settings_.prewarmed, "prewarmed.kiln");
  }

 private:
  void run(const std::string& way, const std::vector<std::filesystem::path>& bases, const char* overlay) {
    if (!settings_.only.empty() && settings_.only != way) return;
    kiln::Options options = settings_.options;
    options.bases = bases;
    options.require_bases = true;
    options.overlay = folder_.path / overlay;
    const auto begun = Clock::now();
    const auto passed_ms = [&] { return std::chrono::duration<double, std::milli>(Clock::now() - begun).count(); };
    options.on_log = [&](const kiln::LogEvent& event) {
      fmt::print(stderr, "{} {:.0f} ms: {} {}: {}\n", way, passed_ms(), event.op, event.bucket, event.text);
    };
    const kiln::Engine engine(options);
    Layer layer(engine, tensors_);
    std::vector<double> at_ms;  // after each batch
    const double ready_ms = passed_ms();
    for (const std::int64_t length : lengths_) {
      layer.run(length, stream_.handle());
      at_ms.push_back(passed_ms() - ready_ms);
    }
    const kiln::Stats first = engine.stats();
    const auto steady = Clock::now();
    for (const std::int64_t length : lengths_) layer.run(length, stream_.handle());
    const double again_ms = std::chrono::duration<double, std::milli>(Clock::now() - steady).count();
    engine.wait_for_tunes(std::chrono::minutes(5));
    print(way, at_ms, again_ms, first, engine.stats(), passed_ms() - ready_ms);
  }

  void print(const std::string& way, const std::vector<double>& at_ms, double again_ms, const kiln::Stats& first,
             const kiln::Stats& last, double all_ms) const {
    std::string row =
        bench::compiled_row("first_batches") +
        fmt::format(",\"way\":\"{}\",\"ahead\":{},\"lengths\":{}", way, settings_.options.compile_ahead, at_ms.size());
    for (const std::size_t batches : {1, 2, 5, 10, 20, 40})
      if (batches < at_ms.size()) row += fmt::format(",\"after_{}_ms\":{:.1f}", batches, at_ms[batches - 1]);
    row += fmt::format(",\"all_ms\":{:.1f},\"second_pass_ms\":{:.1f}", at_ms.back(), again_ms);
    row += fmt::format(",\"waited_compiles\":{},\"compiles_ahead\":{}", first.compiles - first.compiles_ahead,
                       first.compiles_ahead);
    row += fmt::format(",\"nearest\":{},\"model\":{},\"default\":{},\"hits\":{}", first.nearest, first.model,
                       first.default_, first.hot + first.overlay + first.base);
    fmt::print("{},\"compiles_at_end\":{},\"until_idle_ms\":{:.1f}}}\n", row, last.compiles, all_ms);
    std::fflush(stdout);
  }

  const Settings& settings_;
  const std::vector<std::int64_t> lengths_;
  const kiln::cuda::Context context_{settings_.options.device};
  const kiln::cuda::Context::Scope scope_{context_};
  const kiln::cuda::Stream stream_;
  Tensors tensors_;
  Folder folder_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Settings settings = parse(argc, argv);
    Contest(settings).run_all();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_first_batches: {}\n", error.what());
    return 1;
  }
}
